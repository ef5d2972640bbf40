// Faults drawn from a seed: who misbehaves, how and when, and what every other rank must be told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace qx::collectives::testing {

enum class Fault {
  kNeverStarts,
  kStartsLate,
  kDiesBeforeConnecting,
  kDiesWhileConnecting,
  kDiesConnected,
  kDiesWithinOperation,
  kStopsConnected,  // SIGSTOP
  kStopsWithinOperation,
  kDoesNotEnter,
  kEntersAnotherOperation,
  kEntersAnotherDtype,
  kEntersAnotherSize,
  kEntersAnotherRoot,
  kHearsNothing,  // half-open: nothing that is sent to it arrives or is acknowledged, and it says nothing
};
inline constexpr int kNumFaults = static_cast<int>(Fault::kHearsNothing) + 1;

inline const char* fault_name(Fault fault) {
  static const char* const names[] = {"never starts",         "starts late",
                                      "dies unconnected",     "dies while connecting",
                                      "dies connected",       "dies within an operation",
                                      "stops connected",      "stops within an operation",
                                      "does not enter",       "enters another operation",
                                      "enters another dtype", "enters another size",
                                      "enters another root",  "hears nothing"};
  return names[static_cast<int>(fault)];
}

inline bool is_mismatch(Fault fault) {
  return fault >= Fault::kEntersAnotherOperation && fault <= Fault::kEntersAnotherRoot;
}
inline bool is_within_operation(Fault fault) {
  return fault == Fault::kDiesWithinOperation || fault == Fault::kStopsWithinOperation;
}
inline bool is_before_all_are_connected(Fault fault) { return fault <= Fault::kDiesWhileConnecting; }
// Those after which a rank is gone: the others may hear of it before their deadline.
inline bool is_death(Fault fault) {
  return fault == Fault::kDiesWhileConnecting || fault == Fault::kDiesConnected || fault == Fault::kDiesWithinOperation;
}

enum class Collective {
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter
};
inline constexpr int kNumCollectives = static_cast<int>(Collective::kScatter) + 1;

struct FaultCase {
  uint64_t seed = 0;
  Fault fault = Fault::kNeverStarts;
  int world_size = 2;
  std::vector<int> victims;  // sorted
  Collective collective = Collective::kBarrier;
  int64_t count = 1;  // floats of each rank
  int root = 0;
  bool shared_memory = true;
  int deadline_ms = 500;      // of the operations that cannot end well
  bool group_expires = true;  // connecting has the same deadline, else a far one
  int good_operations = 0;    // that end well before the fault, and have far deadlines
  int fault_delay_us = 0;     // within the step that the fault is in

  bool is_victim(int rank) const { return std::binary_search(victims.begin(), victims.end(), rank); }
  std::string name() const {
    std::string text = "seed " + std::to_string(seed) + ": of " + std::to_string(world_size) + " ranks";
    for (const int rank : victims) text += " " + std::to_string(rank);
    return text + " " + fault_name(fault);
  }
};

// The same seed gives the same case everywhere. Every fault has its turn.
inline FaultCase draw_fault_case(uint64_t seed) {
  std::mt19937_64 bits(seed * 0x9e3779b97f4a7c15u + 1);
  const auto up_to = [&](int64_t last) { return static_cast<int>(bits() % static_cast<uint64_t>(last + 1)); };
  FaultCase drawn;
  drawn.seed = seed;
  drawn.fault = static_cast<Fault>(seed % kNumFaults);
  drawn.world_size = 2 + up_to(6);
  // Of several that die, the first is news enough: two are drawn where a deadline must name all.
  const bool two = !is_mismatch(drawn.fault) && !is_death(drawn.fault) && drawn.world_size > 2 && up_to(2) == 0;
  while (drawn.victims.size() < (two ? 2u : 1u)) {
    const int rank = up_to(drawn.world_size - 1);
    if (!drawn.is_victim(rank)) drawn.victims.push_back(rank);
    std::sort(drawn.victims.begin(), drawn.victims.end());
  }
  drawn.collective = static_cast<Collective>(up_to(kNumCollectives - 1));
  if (drawn.fault == Fault::kEntersAnotherRoot) drawn.collective = Collective::kBroadcast;
  const bool needs_size = drawn.fault == Fault::kEntersAnotherDtype || drawn.fault == Fault::kEntersAnotherSize;
  if ((needs_size || is_within_operation(drawn.fault)) && drawn.collective == Collective::kBarrier) {
    drawn.collective = Collective::kAllReduce;
  }
  const int64_t counts[] = {1, 7, 1000, 5000, 50000, 200000};
  drawn.count = is_within_operation(drawn.fault) ? counts[4 + up_to(1)] : counts[up_to(4)];
  drawn.root = up_to(drawn.world_size - 1);
  drawn.shared_memory = drawn.fault != Fault::kHearsNothing && up_to(2) != 0;
  drawn.deadline_ms = (is_within_operation(drawn.fault) ? 800 : 400) + up_to(300);
  drawn.group_expires = is_before_all_are_connected(drawn.fault) && up_to(1) == 0;
  drawn.good_operations = is_before_all_are_connected(drawn.fault) ? 0 : 1 + up_to(2);
  drawn.fault_delay_us = up_to(4000);
  return drawn;
}

}  // namespace qx::collectives::testing
