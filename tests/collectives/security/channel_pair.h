// Two ends of a connection, in memory.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "quincunx/collectives/security/secure_channel.h"

namespace qx::collectives::testing {

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline SecureChannel::Clock::time_point in_one_minute() {
  return SecureChannel::Clock::now() + std::chrono::minutes(1);
}

inline Identity connecting(int rank, int peer_rank, std::string token = "") {
  return {Purpose::kBootstrap, true, rank, peer_rank, 77, std::move(token)};
}

inline Identity accepting(int rank, std::string token = "") {
  return {Purpose::kBootstrap, false, rank, -1, 77, std::move(token)};
}

inline std::unique_ptr<SecureChannel> channel(const Credentials& credentials, const Identity& identity) {
  auto created = SecureChannel::create(credentials, identity, in_one_minute());
  QX_CHECK_MESSAGE(created.ok(), created.status().message());
  return std::move(*created);
}

inline void feed(SecureChannel& to, std::span<const std::byte> bytes, size_t piece) {
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    to.receive(bytes.subspan(begin, std::min(piece, bytes.size() - begin)));
  }
}

// Carries bytes both ways, `piece` at a time, until both ends are silent.
inline void converse(SecureChannel& a, SecureChannel& b, size_t piece = 4096) {
  while (true) {
    const std::vector<std::byte> from_a = a.take_outgoing(), from_b = b.take_outgoing();
    if (from_a.empty() && from_b.empty()) return;
    feed(b, from_a, piece);
    feed(a, from_b, piece);
  }
}

}  // namespace qx::collectives::testing
