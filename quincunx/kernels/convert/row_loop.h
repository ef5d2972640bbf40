// How much work a thread takes of loops over rows.
#pragma once

#include <cstdint>

namespace qx::kernels {

// Elements a task handles at least: below this a thread costs more than it saves.
inline constexpr int64_t kRowLoopGrain = 16384;

}  // namespace qx::kernels
