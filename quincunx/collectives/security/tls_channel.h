// TLS 1.3 with certificates on both sides, around the proof of the secret: the certificates say that both ends belong
// to the job's authority and encrypt what follows, the proof inside says which rank of which job each is. Addresses are
// numeric, so names in certificates are not compared with anything. Needs OpenSSL, and no socket.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quincunx/collectives/security/hmac_channel.h"
#include "quincunx/collectives/security/secure_channel.h"

// OpenSSL's own names for its types; its headers stay in the sources.
struct ssl_ctx_st;
struct ssl_st;

namespace qx::collectives {

// Certificates and key of this process, read once. Thread-safe.
class TlsContext {
 public:
  // Files in PEM: the own certificate (chain), its key, and the authority whose certificates are accepted. The key must
  // shut out group and others, as a secret file must.
  struct Files {
    std::string certificate, key, authority;
    // What errors call them.
    struct Names {
      std::string certificate = "QX_MCCL_TLS_CERT", key = "QX_MCCL_TLS_KEY", authority = "QX_MCCL_TLS_CA";
    } names = {};
  };
  static Result<std::shared_ptr<const TlsContext>> load(const Files& files);
  // From QX_MCCL_TLS_CERT, QX_MCCL_TLS_KEY and QX_MCCL_TLS_CA: null where none is set, an error where only some are.
  static Result<std::shared_ptr<const TlsContext>> from_environment();
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* raw() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

class TlsChannel final : public SecureChannel {
 public:
  static Result<std::unique_ptr<SecureChannel>> create(const Credentials& credentials, const Identity& identity,
                                                       Clock::time_point deadline);
  ~TlsChannel() override;

  int peer_rank() const override { return proof_ ? proof_->peer_rank() : -1; }
  void receive(std::span<const std::byte> bytes) override;
  std::vector<std::byte> take_outgoing() override;
  void send(std::span<const std::byte> bytes) override;
  std::vector<std::byte> take_received() override;
  bool is_transparent() const override { return false; }

 private:
  TlsChannel(Credentials credentials, const Identity& identity, Clock::time_point deadline);
  void advance();
  void start_proof();
  void read_records();
  void refuse_with_reason(const std::string& what);

  const Credentials credentials_;
  const Identity identity_;
  ssl_st* session_ = nullptr;
  std::unique_ptr<HmacChannel> proof_;  // from the end of TLS's own handshake on
  size_t num_received_bytes_ = 0;       // before authentication
  std::vector<std::byte> received_;
};

}  // namespace qx::collectives
