// The tile registers (AMX) belong to a process only after it has asked for them.
#pragma once

namespace qx::kernels {

// True where the operating system lets this process use them: Linux is asked once, at the first call, and saves the
// registers of all threads from then on.
bool may_use_tile_registers();

}  // namespace qx::kernels
