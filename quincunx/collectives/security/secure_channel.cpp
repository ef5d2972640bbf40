#include "quincunx/collectives/security/secure_channel.h"

#include "quincunx/collectives/security/hmac_channel.h"
#include "quincunx/collectives/security/tls_channel.h"

namespace qx::collectives {

Result<Credentials> Credentials::from_environment() {
  Credentials credentials;
  QX_ASSIGN_OR_RETURN(credentials.secret, secret_from_environment());
  QX_ASSIGN_OR_RETURN(credentials.tls, TlsContext::from_environment());
  return credentials;
}

Result<std::shared_ptr<const Credentials>> Credentials::from_named(const NamedCredentials& named,
                                                                   const std::string& prefix) {
  const bool has_tls = named.tls_certificate_file || named.tls_key_file || named.tls_authority_file;
  if (!named.secret && !named.secret_file && !has_tls) return std::shared_ptr<const Credentials>();
  Credentials credentials;
  if (named.secret && named.secret_file) {
    return invalid_argument(prefix + "secret: expected none where " + prefix + "secret_file is given");
  }
  if (named.secret) {
    QX_ASSIGN_OR_RETURN(credentials.secret, make_secret((prefix + "secret").c_str(), *named.secret));
  } else if (named.secret_file) {
    QX_ASSIGN_OR_RETURN(credentials.secret, read_secret_file(*named.secret_file, (prefix + "secret_file").c_str()));
  }
  if (has_tls) {
    if (!named.tls_certificate_file || !named.tls_key_file || !named.tls_authority_file) {
      return invalid_argument(prefix + "tls_*_file: expected certificate, key and authority, or none of them");
    }
    const TlsContext::Files files{
        *named.tls_certificate_file,
        *named.tls_key_file,
        *named.tls_authority_file,
        {prefix + "tls_certificate_file", prefix + "tls_key_file", prefix + "tls_authority_file"}};
    QX_ASSIGN_OR_RETURN(credentials.tls, TlsContext::load(files));
  }
  return std::make_shared<const Credentials>(std::move(credentials));
}

Result<std::unique_ptr<SecureChannel>> SecureChannel::create(const Credentials& credentials, const Identity& identity,
                                                             Clock::time_point deadline) {
  if (credentials.tls) return TlsChannel::create(credentials, identity, deadline);
  QX_ASSIGN_OR_RETURN(auto channel, HmacChannel::create(credentials.secret, identity, deadline));
  return std::unique_ptr<SecureChannel>(std::move(channel));
}

void SecureChannel::expire(Clock::time_point now) {
  if (state_ == State::kPending && now >= deadline_) {
    refuse(deadline_exceeded("the peer did not prove who it is within its time"));
  }
}

void SecureChannel::refuse(Status reason) {
  if (state_ == State::kRefused) return;
  state_ = State::kRefused;
  refusal_ = std::move(reason);
}

}  // namespace qx::collectives
