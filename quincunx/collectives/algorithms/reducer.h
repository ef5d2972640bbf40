// The slice that one rank reduces: contributions arrive from the peers in any order and are added in the order of
// ranks, so that the bits depend on neither arrival nor transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/transport/link.h"

namespace qx::collectives {

// How far a peer may be ahead of the slowest one. Its memory is the staging of that peer; 4 frames keep a ring busy.
inline constexpr int64_t kReduceWindowBytes = 256 << 10;

class Reducer {
 public:
  struct Slice {
    const std::byte* own = nullptr;  // this rank's contribution
    std::byte* output = nullptr;     // may be `own`
    int64_t size_bytes = 0;
    DType dtype = DType::kFloat32;
    // The output is a partial result in f32: see partial_reduction.h. Only for types that accumulate in f32.
    bool widens = false;
  };
  Reducer(const Reduction& reduction, const Slice& slice, int rank, int world_size);

  // Takes up to `limit` bytes of the peer's contribution from the link; returns how many.
  int64_t receive(int peer, Link& link, int64_t limit);
  // The peer's whole contribution at once.
  void accept(int peer, std::span<const std::byte> contribution);
  // The peer's whole contribution lies at `data` and stays there until it has been reduced.
  void read_from(int peer, const std::byte* data);
  // Reduces what all peers have delivered, at most `limit` bytes. A world of one is done after this.
  void advance(int64_t limit = std::numeric_limits<int64_t>::max());

  int64_t reduced_bytes() const { return reduced_; }
  int64_t received_bytes(int peer) const { return received_[static_cast<size_t>(peer)]; }
  // True where peers wait for credit beyond their first window.
  bool needs_credit() const { return world_size_ > 2 && slice_.size_bytes > kReduceWindowBytes; }

 private:
  // With two ranks there is one contribution: it is reduced where it lies.
  int64_t reduce_from(int peer, std::span<const std::byte> contribution);
  void reduce_block(std::span<const void* const> sources, int64_t num_bytes);
  void reduce_widened(std::span<const void* const> sources, int64_t count);

  Reduction reduction_;
  Slice slice_;
  int rank_;
  int world_size_;
  int64_t element_bytes_;
  int64_t window_bytes_;
  std::vector<int64_t> received_;
  std::vector<std::vector<std::byte>> staging_;
  std::vector<const std::byte*> in_place_;  // by peer; null where its contribution is sent
  int64_t reduced_ = 0;
};

}  // namespace qx::collectives
