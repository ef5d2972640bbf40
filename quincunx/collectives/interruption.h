// What ends the wait of one thread, as Ctrl-C does: the operation goes on in the background.
#pragma once

namespace qx::collectives {

// True: this thread's wait is to end with kAborted.
using InterruptCheck = bool (*)();

// Asked by each thread that waits for an operation or a group, about every 100 ms, while it holds no lock. It may run
// what it likes, operations of groups among it, and must not throw. Null, the default: nothing is asked. Thread-safe.
void set_interrupt_check(InterruptCheck check);
InterruptCheck interrupt_check();

}  // namespace qx::collectives
