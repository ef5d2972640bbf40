#include "quincunx/collectives/peer_channel.h"

#include <algorithm>
#include <cstring>

namespace qx::collectives {
namespace {

constexpr std::byte kPadding[kFrameAlignment] = {};

}  // namespace

void PeerChannel::post(FrameHeader header, std::span<const std::byte> first, std::span<const std::byte> second) {
  header.payload_bytes = static_cast<int64_t>(first.size() + second.size());
  std::vector<std::byte> frame(kHeaderBytes + static_cast<size_t>(padded_bytes(header.payload_bytes)));
  encode_frame_header(header, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  if (!first.empty()) std::memcpy(frame.data() + kHeaderBytes, first.data(), first.size());
  if (!second.empty()) std::memcpy(frame.data() + kHeaderBytes + first.size(), second.data(), second.size());
  queue_.push_back(std::move(frame));
}

Result<bool> PeerChannel::pump() {
  QX_ASSIGN_OR_RETURN(const bool received, pump_in());
  bool sent = false;
  while (writing_ ? write_streamed() : write_queued() || write_streamed()) sent = true;
  link_->flush();
  return received || sent;
}

void PeerChannel::pump_out() {
  while (writing_ ? write_streamed() : write_queued() || write_streamed()) {
  }
  link_->flush();
}

bool PeerChannel::write_queued() {
  if (queue_.empty()) return false;
  const auto& frame = queue_.front();
  const size_t written = link_->write(std::span(frame).subspan(queue_position_));
  queue_position_ += written;
  if (queue_position_ == frame.size()) {
    queue_.pop_front();
    queue_position_ = 0;
  }
  return written > 0;
}

bool PeerChannel::write_streamed() {
  if (!writing_) {
    if (!queue_.empty()) return false;
    std::optional<OutgoingFrame> next = handler_.next_frame(peer_);
    if (!next) return false;
    current_ = std::move(*next);
    current_.header.payload_bytes = static_cast<int64_t>(current_.bytes.size());
    encode_frame_header(current_.header, current_header_);
    current_position_ = 0;
    writing_ = true;
  }
  const auto size = static_cast<int64_t>(current_.bytes.size());
  const int64_t end = static_cast<int64_t>(kHeaderBytes) + padded_bytes(size);
  const auto header_bytes = static_cast<int64_t>(kHeaderBytes);
  bool moved = false;
  while (current_position_ < end) {
    std::span<const std::byte> piece;
    if (current_position_ < header_bytes) {
      piece = std::span(current_header_).subspan(static_cast<size_t>(current_position_));
    } else if (current_position_ < header_bytes + size) {
      piece = current_.bytes.subspan(static_cast<size_t>(current_position_ - header_bytes));
    } else {
      piece = std::span(kPadding).first(static_cast<size_t>(end - current_position_));
    }
    const size_t written = link_->write(piece);
    current_position_ += static_cast<int64_t>(written);
    moved = moved || written > 0;
    if (written < piece.size()) return moved;
  }
  link_->flush();
  writing_ = false;
  // The callback may start the next operation, and with it the next frame of this channel.
  const std::function<void()> sent = std::move(current_.sent);
  current_ = {};
  if (sent) sent();
  return true;
}

void PeerChannel::release(const void* owner) {
  if (!writing_ || current_.owner != owner) return;
  current_copy_.assign(current_.bytes.begin(), current_.bytes.end());
  current_.bytes = current_copy_;
  current_.owner = nullptr;
  current_.sent = nullptr;
}

Result<bool> PeerChannel::pump_in() {
  bool moved = false;
  while (true) {
    QX_ASSIGN_OR_RETURN(const bool stepped, reading_ ? read_payload() : read_header());
    if (!stepped) return moved;
    moved = true;
  }
}

Result<bool> PeerChannel::read_header() {
  const std::span<const std::byte> unread = link_->peek(kHeaderBytes);
  if (unread.size() < kHeaderBytes) return false;
  QX_ASSIGN_OR_RETURN(const FrameHeader header, decode_frame_header(unread.first<kHeaderBytes>()));
  link_->consume(kHeaderBytes);
  reading_ = header;
  read_bytes_ = 0;
  if (!is_streamed(header.kind)) payload_.resize(static_cast<size_t>(header.payload_bytes));
  return true;
}

Result<bool> PeerChannel::read_payload() {
  const FrameHeader& header = *reading_;
  int64_t taken = 0;
  if (read_bytes_ < header.payload_bytes) {
    const int64_t left = header.payload_bytes - read_bytes_;
    if (!is_streamed(header.kind)) {
      taken = static_cast<int64_t>(link_->read(payload_.data() + read_bytes_, static_cast<size_t>(left)));
    } else {
      QX_ASSIGN_OR_RETURN(const std::optional<int64_t> wanted, handler_.on_stream(peer_, header, *link_, left));
      taken = wanted.value_or(-1);
      if (!wanted) {
        taken = std::min(left, static_cast<int64_t>(link_->peek(1).size()));
        link_->consume(static_cast<size_t>(taken));
      }
    }
    read_bytes_ += taken;
    if (read_bytes_ < header.payload_bytes) return taken > 0;
  }
  const int64_t padding = padded_bytes(header.payload_bytes) - header.payload_bytes;
  if (static_cast<int64_t>(link_->peek(static_cast<size_t>(padding)).size()) < padding) return taken > 0;
  link_->consume(static_cast<size_t>(padding));
  const FrameHeader done = header;
  reading_.reset();
  if (!is_streamed(done.kind)) QX_RETURN_IF_ERROR(handler_.on_frame(peer_, done, payload_));
  return true;
}

}  // namespace qx::collectives
