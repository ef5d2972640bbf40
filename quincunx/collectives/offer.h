// The payload of a frame whose kind is kOffer.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/collectives/transport/shared_arena.h"

namespace qx::collectives {

// `count` bytes of the header's stream lie at `offset` in the sender's arena, or at that address of its process where
// it names no arena (fd -1). They stay as they are until kTaken; those of stream 1 are there as far as kReady has said.
struct Offer {
  ArenaAddress arena;
  int64_t offset = 0;

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
  static Result<Offer> from_bytes(std::span<const std::byte> payload) {
    Offer offer;
    if (payload.size() != sizeof(offer)) return data_loss("an offer of another length");
    std::memcpy(&offer, payload.data(), sizeof(offer));
    return offer;
  }
};

}  // namespace qx::collectives
