#include "quincunx/collectives/interruption.h"

#include <atomic>

namespace qx::collectives {
namespace {

std::atomic<InterruptCheck> current_check{nullptr};

}  // namespace

void set_interrupt_check(InterruptCheck check) { current_check.store(check); }

InterruptCheck interrupt_check() { return current_check.load(); }

}  // namespace qx::collectives
