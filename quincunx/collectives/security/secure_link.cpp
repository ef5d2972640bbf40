#include "quincunx/collectives/security/secure_link.h"

namespace qx::collectives {
namespace {

// Encrypted at once; more waits for room, as it would in a socket.
constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

SecureLink::SecureLink(int fd, std::unique_ptr<SecureChannel> channel)
    : TcpLink(fd, {}),
      channel_(std::move(channel)),
      plain_(channel_->take_received()),
      encrypted_(channel_->take_outgoing()) {}

void SecureLink::push() {
  while (begin_encrypted_ < encrypted_.size()) {
    const size_t taken = TcpLink::write(std::span(encrypted_).subspan(begin_encrypted_));
    if (taken == 0) return;
    begin_encrypted_ += taken;
  }
}

size_t SecureLink::write(std::span<const std::byte> bytes) {
  push();
  if (begin_encrypted_ < encrypted_.size()) return 0;
  const size_t piece = std::min(bytes.size(), kPieceBytes);
  channel_->send(bytes.first(piece));
  encrypted_ = channel_->take_outgoing();
  begin_encrypted_ = 0;
  push();
  return piece;
}

void SecureLink::flush() {
  push();
  TcpLink::flush();
}

std::span<const std::byte> SecureLink::peek(size_t wanted) {
  while (plain_.size() - begin_plain_ < wanted) {
    const std::span<const std::byte> arrived = TcpLink::peek(1);
    if (arrived.empty()) break;
    channel_->receive(arrived);
    TcpLink::consume(arrived.size());
    if (channel_->state() != SecureChannel::State::kAuthenticated) mark_closed(channel_->refusal().message());
    plain_.erase(plain_.begin(), plain_.begin() + static_cast<std::ptrdiff_t>(begin_plain_));
    begin_plain_ = 0;
    const std::vector<std::byte> more = channel_->take_received();
    plain_.insert(plain_.end(), more.begin(), more.end());
  }
  return std::span(plain_).subspan(begin_plain_);
}

}  // namespace qx::collectives
