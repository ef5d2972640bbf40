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
