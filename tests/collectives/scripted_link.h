// A link whose other end is the test: for the frame parser, its tests and its fuzzer.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "quincunx/collectives/peer_channel.h"

namespace qx::collectives {

class ScriptedLink : public Link {
 public:
  void feed(std::span<const std::byte> bytes) { incoming_.insert(incoming_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> take_written() { return std::move(written_); }

  size_t write(std::span<const std::byte> bytes) override {
    written_.insert(written_.end(), bytes.begin(), bytes.end());
    return bytes.size();
  }
  void flush() override {}
  bool has_unsent() const override { return false; }
  std::span<const std::byte> peek(size_t) override { return std::span(incoming_).subspan(position_); }
  void consume(size_t num_bytes) override { position_ += num_bytes; }
  std::string_view name() const override { return "scripted"; }

 private:
  std::vector<std::byte> incoming_;
  size_t position_ = 0;
  std::vector<std::byte> written_;
};

// Keeps the payloads of whole frames; takes streamed bytes, at most as many as the frame has.
class RecordingHandler : public FrameHandler {
 public:
  std::optional<OutgoingFrame> next_frame(int) override { return std::nullopt; }
  Status on_frame(int, const FrameHeader&, std::span<const std::byte> payload) override {
    payloads.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    return ok_status();
  }
  Result<std::optional<int64_t>> on_stream(int, const FrameHeader& header, Link& link, int64_t limit) override {
    if (header.stream == 1) return std::optional<int64_t>();
    std::vector<std::byte> taken(static_cast<size_t>(limit));
    return std::optional<int64_t>(static_cast<int64_t>(link.read(taken.data(), taken.size())));
  }
  std::vector<std::string> payloads;
};

inline PeerChannel scripted_channel(FrameHandler& handler, ScriptedLink*& link) {
  auto owned = std::make_unique<ScriptedLink>();
  link = owned.get();
  PeerChannel channel(1, handler);
  channel.attach(std::move(owned));
  return channel;
}

}  // namespace qx::collectives
