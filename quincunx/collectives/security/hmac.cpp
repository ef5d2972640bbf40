#include "quincunx/collectives/security/hmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace qx::collectives {
namespace {

struct FreeContext {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

// A context that holds the algorithms and no key; looking them up takes longer than one digest.
const EVP_MAC_CTX* prototype() {
  static const EVP_MAC_CTX* const context = []() -> EVP_MAC_CTX* {
    initialise_openssl();
    EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX* made = mac != nullptr ? EVP_MAC_CTX_new(mac) : nullptr;
    EVP_MAC_free(mac);
    char name[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                                     OSSL_PARAM_construct_end()};
    if (made != nullptr && EVP_MAC_CTX_set_params(made, parameters) != 1) {
      EVP_MAC_CTX_free(made);
      made = nullptr;
    }
    return made;
  }();
  return context;
}

const unsigned char* raw(Bytes bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

}  // namespace

void initialise_openssl() {
  static const int done = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  static_cast<void>(done);
}

Result<Digest> hmac_sha256(Bytes key, std::initializer_list<Bytes> parts) {
  const EVP_MAC_CTX* source = prototype();
  const std::unique_ptr<EVP_MAC_CTX, FreeContext> context(source != nullptr ? EVP_MAC_CTX_dup(source) : nullptr);
  // OpenSSL takes a null key for "the key of before".
  const unsigned char none = 0;
  bool done = context && EVP_MAC_init(context.get(), key.empty() ? &none : raw(key), key.size(), nullptr) == 1;
  for (const Bytes part : parts) done = done && EVP_MAC_update(context.get(), raw(part), part.size()) == 1;
  Digest digest{};
  size_t size = 0;
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  done = done && EVP_MAC_final(context.get(), out, &size, digest.size()) == 1 && size == digest.size();
  if (!done) return internal_error("OpenSSL computes no HMAC-SHA256");
  return digest;
}

bool equal_in_constant_time(Bytes a, Bytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return unavailable(std::string("getrandom: ") + std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return ok_status();
}

}  // namespace qx::collectives
