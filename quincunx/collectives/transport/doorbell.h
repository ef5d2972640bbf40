// Wakes the one thread of a rank that sleeps until its peers have done something. Lives in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace qx::collectives {

struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> wanted{0};  // rings that are still to come before the sleeper is woken; 0: nobody sleeps

  // Announces a sleep that so many rings end. The caller looks for work once more after this, and then sleeps or calls
  // cancel.
  uint32_t announce(uint32_t num_rings);
  void cancel();
  // Sleeps until it is woken, at most `limit`, unless it was since announce returned `seen`.
  void sleep(uint32_t seen, std::chrono::nanoseconds limit);
  // Call after making the work visible: costs a fence when nobody sleeps.
  void ring();
  // Ends the sleep, however many rings it wants.
  void wake();
};

}  // namespace qx::collectives
