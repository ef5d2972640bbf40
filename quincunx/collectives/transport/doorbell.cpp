#include "quincunx/collectives/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace qx::collectives {

uint32_t Doorbell::announce(uint32_t num_rings) {
  const uint32_t seen = rings.load(std::memory_order_acquire);
  // Sequentially consistent with ring(): either the ringer sees the sleeper, or the sleeper sees the ringer's work.
  wanted.exchange(num_rings, std::memory_order_seq_cst);
  return seen;
}

void Doorbell::cancel() { wanted.store(0, std::memory_order_relaxed); }

void Doorbell::sleep(uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit.count() > 0) {
    const timespec time{static_cast<time_t>(limit.count() / 1000000000), static_cast<long>(limit.count() % 1000000000)};
    syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &time, nullptr, 0);
  }
  cancel();
}

void Doorbell::ring() {
  // A read-modify-write, not a fence: ThreadSanitizer does not know fences, and on x86 both cost the same.
  uint32_t left = wanted.fetch_add(0, std::memory_order_seq_cst);
  while (left > 1) {
    if (wanted.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) return;
  }
  if (left == 1) wake();
}

void Doorbell::wake() {
  // Once: whoever rings before the sleeper runs need not call the system again.
  if (wanted.exchange(0, std::memory_order_seq_cst) == 0) return;
  rings.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace qx::collectives
