// A certificate authority for tests: makes key and certificate files in a directory.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <string>

#include "quincunx/base/check.h"
#include "quincunx/collectives/security/tls_channel.h"

namespace qx::collectives::testing {

struct FreeOpenSsl {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeOpenSsl>;
using CertificatePtr = std::unique_ptr<X509, FreeOpenSsl>;

class Authority {
 public:
  explicit Authority(std::string directory, const std::string& name) : directory_(std::move(directory)), name_(name) {
    certificate_ = certificate_for(name, key_.get(), 3600);
    write_certificate(name, certificate_.get());
  }

  // Files of a member. `seconds` until its certificate ends, negative for one that has ended.
  TlsContext::Files member(const std::string& name, long seconds = 3600) const {
    const KeyPtr key(EVP_EC_gen("P-256"));
    write_certificate(name, certificate_for(name, key.get(), seconds).get());
    FILE* file = std::fopen((path(name) + ".key").c_str(), "w");
    QX_CHECK(file != nullptr && PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
    std::fclose(file);
    chmod((path(name) + ".key").c_str(), 0600);
    return {path(name) + ".crt", path(name) + ".key", path(name_) + ".crt"};
  }

 private:
  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  CertificatePtr certificate_for(const std::string& name, EVP_PKEY* key, long seconds) const {
    CertificatePtr certificate(X509_new());
    X509* raw = certificate.get();
    X509_set_version(raw, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(raw), static_cast<long>(std::hash<std::string>()(name) >> 2));
    X509_gmtime_adj(X509_getm_notBefore(raw), -7200);
    X509_gmtime_adj(X509_getm_notAfter(raw), seconds);
    X509_set_pubkey(raw, key);
    X509_NAME* subject = X509_get_subject_name(raw);
    const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, text, -1, -1, 0);
    X509_set_issuer_name(raw, certificate_ ? X509_get_subject_name(certificate_.get()) : subject);
    if (!certificate_) {
      X509_EXTENSION* may_sign = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
      X509_add_ext(raw, may_sign, -1);
      X509_EXTENSION_free(may_sign);
    }
    QX_CHECK(X509_sign(raw, key_.get(), EVP_sha256()) > 0);
    return certificate;
  }

  void write_certificate(const std::string& name, X509* certificate) const {
    FILE* file = std::fopen((path(name) + ".crt").c_str(), "w");
    QX_CHECK(file != nullptr && PEM_write_X509(file, certificate) == 1);
    std::fclose(file);
  }

  const std::string directory_, name_;
  const KeyPtr key_{EVP_EC_gen("P-256")};
  CertificatePtr certificate_;
};

}  // namespace qx::collectives::testing
