#include "quincunx/collectives/security/tls_channel.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace qx::collectives {
namespace {

// Certificate chains of both ends and the proof take a few KiB; more before authentication is refused.
constexpr size_t kMaxUnauthenticatedBytes = 64 << 10;
constexpr size_t kRecordBytes = 16 << 10;
constexpr char kBindingLabel[] = "EXPORTER-quincunx-mccl";

// The oldest reason of this thread's queue, which it empties.
std::string openssl_error() {
  const unsigned long code = ERR_get_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  return reason != nullptr ? reason : "no reason given";
}

Status cannot_use(const std::string& name, const std::string& path, const std::string& why) {
  return invalid_argument(name + ": cannot use \"" + path + "\": " + why);
}

Status check_key_file(const TlsContext::Files& files) {
  struct stat file = {};
  if (stat(files.key.c_str(), &file) != 0) return cannot_use(files.names.key, files.key, std::strerror(errno));
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) == 0) return ok_status();
  return cannot_use(files.names.key, files.key, "expected a mode that shuts out group and others (chmod 600)");
}

int no_password(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*user*/) { return -1; }

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const Files& files) {
  initialise_openssl();
  QX_RETURN_IF_ERROR(check_key_file(files));
  SSL_CTX* raw = SSL_CTX_new(TLS_method());
  if (raw == nullptr) return internal_error("OpenSSL makes no TLS context: " + openssl_error());
  std::shared_ptr<const TlsContext> context(new TlsContext(raw));
  SSL_CTX_set_default_passwd_cb(raw, no_password);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 || SSL_CTX_set_num_tickets(raw, 0) != 1) {
    return unimplemented("this OpenSSL has no TLS 1.3: " + openssl_error());
  }
  if (SSL_CTX_use_certificate_chain_file(raw, files.certificate.c_str()) != 1) {
    return cannot_use(files.names.certificate, files.certificate, openssl_error());
  }
  if (SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(raw) != 1) {
    return cannot_use(files.names.key, files.key, openssl_error());
  }
  if (SSL_CTX_load_verify_locations(raw, files.authority.c_str(), nullptr) != 1) {
    return cannot_use(files.names.authority, files.authority, openssl_error());
  }
  return context;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::from_environment() {
  Files files;
  std::string missing;
  int num_set = 0;
  for (auto [name, value] : {std::pair{"QX_MCCL_TLS_CERT", &files.certificate},
                             std::pair{"QX_MCCL_TLS_KEY", &files.key}, std::pair{"QX_MCCL_TLS_CA", &files.authority}}) {
    const char* text = std::getenv(name);
    if (text != nullptr) *value = text;
    num_set += value->empty() ? 0 : 1;
    if (value->empty()) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (num_set == 0) return std::shared_ptr<const TlsContext>();
  if (num_set < 3) {
    return invalid_argument("TLS needs QX_MCCL_TLS_CERT, QX_MCCL_TLS_KEY and QX_MCCL_TLS_CA; not set: " + missing);
  }
  return load(files);
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsChannel::TlsChannel(Credentials credentials, const Identity& identity, Clock::time_point deadline)
    : SecureChannel(deadline), credentials_(std::move(credentials)), identity_(identity) {}

TlsChannel::~TlsChannel() { SSL_free(session_); }

Result<std::unique_ptr<SecureChannel>> TlsChannel::create(const Credentials& credentials, const Identity& identity,
                                                          Clock::time_point deadline) {
  std::unique_ptr<TlsChannel> channel(new TlsChannel(credentials, identity, deadline));
  channel->session_ = SSL_new(credentials.tls->raw());
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (channel->session_ == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return resource_exhausted("OpenSSL makes no TLS session: " + openssl_error());
  }
  SSL_set_bio(channel->session_, in, out);
  if (identity.connects)
    SSL_set_connect_state(channel->session_);
  else
    SSL_set_accept_state(channel->session_);
  channel->advance();
  return std::unique_ptr<SecureChannel>(std::move(channel));
}

void TlsChannel::receive(std::span<const std::byte> bytes) {
  if (state() == State::kRefused) return;
  if (state() == State::kPending) {
    num_received_bytes_ += bytes.size();
    if (num_received_bytes_ > kMaxUnauthenticatedBytes) {
      return refuse_with_reason("more than " + std::to_string(kMaxUnauthenticatedBytes) +
                                " bytes came before the peer proved who it is");
    }
  }
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), size_t{INT_MAX});
    const int taken = BIO_write(SSL_get_rbio(session_), bytes.data(), static_cast<int>(piece));
    if (taken <= 0) return refuse_with_reason("OpenSSL takes no more bytes: " + openssl_error());
    bytes = bytes.subspan(static_cast<size_t>(taken));
  }
  advance();
}

void TlsChannel::advance() {
  ERR_clear_error();
  if (!proof_) {
    const int result = SSL_do_handshake(session_);
    if (result != 1) {
      const int error = SSL_get_error(session_, result);
      if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
      const long verified = SSL_get_verify_result(session_);
      const std::string certificate =
          verified == X509_V_OK ? "" : std::string(" (") + X509_verify_cert_error_string(verified) + ")";
      return refuse_with_reason("TLS: " + openssl_error() + certificate);
    }
    start_proof();
  }
  if (state() != State::kRefused) read_records();
}

void TlsChannel::start_proof() {
  Digest binding;
  auto* out = reinterpret_cast<unsigned char*>(binding.data());
  if (SSL_export_keying_material(session_, out, binding.size(), kBindingLabel, sizeof(kBindingLabel) - 1, nullptr, 0,
                                 0) != 1) {
    return refuse_with_reason("TLS: " + openssl_error());
  }
  auto created = HmacChannel::create(credentials_.secret, identity_, deadline(), binding);
  if (!created.ok()) return refuse_with_reason(created.status().message());
  proof_ = std::move(*created);
  send(proof_->take_outgoing());
}

void TlsChannel::read_records() {
  std::byte buffer[kRecordBytes];
  while (true) {
    const int got = SSL_read(session_, buffer, sizeof(buffer));
    if (got <= 0) {
      const int error = SSL_get_error(session_, got);
      if (error == SSL_ERROR_SSL) refuse_with_reason("TLS: " + openssl_error());
      return;  // No whole record is there; the end of the stream is seen by whoever reads the socket.
    }
    const std::span<const std::byte> bytes(buffer, static_cast<size_t>(got));
    if (state() == State::kAuthenticated) {
      received_.insert(received_.end(), bytes.begin(), bytes.end());
      continue;
    }
    proof_->receive(bytes);
    send(proof_->take_outgoing());
    if (proof_->state() == State::kRefused) return refuse(proof_->refusal());
    if (proof_->state() == State::kPending) continue;
    set_authenticated();
    received_ = proof_->take_received();
  }
}

void TlsChannel::refuse_with_reason(const std::string& what) {
  const int rank = peer_rank();
  refuse(unavailable("the peer was refused: " + what +
                     (rank < 0 ? "" : " (it claims to be rank " + std::to_string(rank) + ")")));
}

std::vector<std::byte> TlsChannel::take_outgoing() {
  BIO* out = SSL_get_wbio(session_);
  std::vector<std::byte> bytes(BIO_ctrl_pending(out));
  if (!bytes.empty() && BIO_read(out, bytes.data(), static_cast<int>(bytes.size())) != static_cast<int>(bytes.size())) {
    refuse_with_reason("OpenSSL holds back bytes: " + openssl_error());
    bytes.clear();
  }
  return bytes;
}

void TlsChannel::send(std::span<const std::byte> bytes) {
  while (!bytes.empty() && state() != State::kRefused) {
    const size_t piece = std::min(bytes.size(), kRecordBytes);
    const int taken = SSL_write(session_, bytes.data(), static_cast<int>(piece));
    if (taken <= 0) return refuse_with_reason("TLS: " + openssl_error());
    bytes = bytes.subspan(static_cast<size_t>(taken));
  }
}

std::vector<std::byte> TlsChannel::take_received() { return std::exchange(received_, {}); }

}  // namespace qx::collectives
