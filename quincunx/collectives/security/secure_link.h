// A TCP link whose bytes go through an encrypting channel. It is closed, with the reason, where something arrives that
// the peer has not sent.
#pragma once

#include <memory>
#include <vector>

#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

class SecureLink final : public TcpLink {
 public:
  // `channel` is authenticated, and `fd` the connection that it was authenticated on.
  SecureLink(int fd, std::unique_ptr<SecureChannel> channel);

  size_t write(std::span<const std::byte> bytes) override;
  void flush() override;
  bool has_unsent() const override { return begin_encrypted_ < encrypted_.size() || TcpLink::has_unsent(); }
  std::span<const std::byte> peek(size_t wanted) override;
  void consume(size_t num_bytes) override { begin_plain_ += num_bytes; }
  // Through peek, not from the socket as TcpLink does. NOLINTNEXTLINE(bugprone-parent-virtual-call)
  size_t read(std::byte* destination, size_t size) override { return Link::read(destination, size); }
  std::string_view name() const override { return "TLS"; }

 private:
  void push();

  const std::unique_ptr<SecureChannel> channel_;
  std::vector<std::byte> plain_, encrypted_;
  size_t begin_plain_ = 0;
  size_t begin_encrypted_ = 0;
};

}  // namespace qx::collectives
