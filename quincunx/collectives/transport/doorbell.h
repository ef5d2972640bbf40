// Wakes the one thread of a rank that sleeps until its peers have done something. Lives in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace qx::collectives {

struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleeping{0};

  // Announces the sleep. The caller looks for work once more after this, and then sleeps or calls cancel.
  uint32_t announce();
  void cancel();
  // Sleeps until ring, at most `limit`, unless it rang since announce returned `seen`.
  void sleep(uint32_t seen, std::chrono::nanoseconds limit);
  // Call after making the work visible: costs a fence when nobody sleeps.
  void ring();
};

}  // namespace qx::collectives
