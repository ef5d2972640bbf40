// A collective that is done in stages, each among some of the ranks. A rank goes on to the next stage when it is done
// with the one before; what arrives for it sooner waits in the link.
#pragma once

#include <memory>
#include <vector>

#include "quincunx/collectives/algorithms/exchange.h"

namespace qx::collectives {

struct Stage {
  // Null where this rank has no part in it.
  std::unique_ptr<Exchange> exchange;
  // Ranks of the group by their rank in the stage; ascending.
  std::vector<int> members;
};

class StagedExchange final : public Exchange {
 public:
  // `scratch` is memory that the stages use.
  StagedExchange(std::vector<Stage> stages, std::vector<std::unique_ptr<std::byte[]>> scratch);

  Status begin(std::span<const std::span<const std::byte>> inlined) override;
  bool advance() override;
  Operation operation() const override;
  std::optional<Chunk> next_chunk(int peer) const override;
  void mark_sent(int peer, const Chunk& chunk) override;
  int64_t receive(int peer, int32_t lane, uint8_t stream, Link& link, int64_t limit) override;
  void add_credit(int peer, int32_t lane, int64_t reduced_bytes) override;
  std::span<const std::byte> to_be_sent(int peer, uint8_t stream) const override;
  int32_t offer(int peer, uint8_t stream) override;
  void refused(int peer, int32_t lane, uint8_t stream) override;
  bool read_from(int peer, int32_t lane, uint8_t stream, const std::byte* data, int64_t size) override;
  bool read_from(int peer, int32_t lane, const PeerMemory& memory, int64_t size) override;
  void on_ready(int peer, int32_t lane, int64_t size) override;
  bool on_taken(int peer, int32_t lane, uint8_t stream) override;
  bool read_in_place() override;
  int64_t bytes_read_in_place() const override;
  std::vector<Notice> take_notices() override;
  bool is_complete() const override;
  int64_t missing_from(int peer) const override;
  int64_t unsent_to(int peer) const override;

 private:
  // The exchange of a lane's stage and the peer's rank in it; null where there is none.
  struct Place {
    Exchange* exchange = nullptr;
    int peer = -1;
  };
  Place place_of(int peer, int32_t lane) const;
  Place in_current(int peer) const { return in_stage(peer, current_); }
  Place in_stage(int peer, size_t stage) const;

  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
  size_t current_ = 0;
};

}  // namespace qx::collectives
