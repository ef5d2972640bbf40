// Frames over a link: cuts the byte stream from one peer into frames and writes frames to it, piece by piece, as far as
// the link has room. Never waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/transport/link.h"
#include "quincunx/collectives/wire.h"

namespace qx::collectives {

// A streamed frame that is to be written next. `bytes` stay valid until `sent` is called or the owner is released.
struct OutgoingFrame {
  FrameHeader header;
  std::span<const std::byte> bytes;
  const void* owner = nullptr;
  std::function<void()> sent;
};

// Whoever owns the channels. Calls come from within pump.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  virtual std::optional<OutgoingFrame> next_frame(int peer) = 0;
  // A whole frame that is not streamed.
  virtual Status on_frame(int peer, const FrameHeader& header, std::span<const std::byte> payload) = 0;
  // Takes up to `limit` bytes of a streamed frame from the link; nullopt where nobody wants them.
  virtual Result<std::optional<int64_t>> on_stream(int peer, const FrameHeader& header, Link& link, int64_t limit) = 0;
};

class PeerChannel {
 public:
  PeerChannel(int peer, FrameHandler& handler) : peer_(peer), handler_(handler) {}

  // Frames that were posted before leave through it.
  void attach(std::unique_ptr<Link> link) { link_ = std::move(link); }
  bool has_link() const { return link_ != nullptr; }
  // Queues a frame with a copy of its payload, ahead of streamed ones.
  void post(FrameHeader header, std::span<const std::byte> first, std::span<const std::byte> second = {});
  // With a link: moves what can be moved in both directions; true where anything did. An error means that the peer does
  // not speak the protocol; the channel is then of no use.
  Result<bool> pump();
  // Writes only; with a link.
  void pump_out();
  // The owner's memory is about to go: what is left of its frame is copied.
  void release(const void* owner);
  bool has_unsent() const { return writing_ || !queue_.empty() || (link_ && link_->has_unsent()); }
  // Null before attach.
  Link* link() { return link_.get(); }

 private:
  bool write_queued();
  bool write_streamed();
  Result<bool> pump_in();
  Result<bool> read_header();
  Result<bool> read_payload();

  int peer_;
  std::unique_ptr<Link> link_;
  FrameHandler& handler_;

  std::deque<std::vector<std::byte>> queue_;
  size_t queue_position_ = 0;
  bool writing_ = false;  // `current_` is partly written
  OutgoingFrame current_;
  std::vector<std::byte> current_copy_;
  std::byte current_header_[kHeaderBytes];
  int64_t current_position_ = 0;

  std::optional<FrameHeader> reading_;
  int64_t read_bytes_ = 0;  // of the payload
  std::vector<std::byte> payload_;
};

}  // namespace qx::collectives
