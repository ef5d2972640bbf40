#include "quincunx/collectives/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace qx::collectives {

uint32_t Doorbell::announce() {
  const uint32_t seen = rings.load(std::memory_order_acquire);
  // Sequentially consistent with ring(): either the ringer sees the sleeper, or the sleeper sees the ringer's work.
  sleeping.exchange(1, std::memory_order_seq_cst);
  return seen;
}

void Doorbell::cancel() { sleeping.store(0, std::memory_order_relaxed); }

void Doorbell::sleep(uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit.count() > 0) {
    const timespec time{static_cast<time_t>(limit.count() / 1000000000), static_cast<long>(limit.count() % 1000000000)};
    syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &time, nullptr, 0);
  }
  cancel();
}

void Doorbell::ring() {
  // A read-modify-write, not a fence: ThreadSanitizer does not know fences, and on x86 both cost the same.
  if (sleeping.fetch_add(0, std::memory_order_seq_cst) == 0) return;
  rings.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace qx::collectives
