// Where buffers lie in one block of memory, so that those that are not needed at the same time share it.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::lite {

struct BufferLifetime {
  int64_t size_bytes = 0;
  // The steps during which the contents matter, both included.
  int64_t first = 0;
  int64_t last = 0;
};

struct ArenaLayout {
  std::vector<int64_t> offsets;  // multiples of 64
  int64_t size_bytes = 0;
};

// Largest first, each at the lowest place that no buffer of an overlapping lifetime takes. RESOURCE_EXHAUSTED where the
// sum overflows.
Result<ArenaLayout> lay_out_arena(const std::vector<BufferLifetime>& buffers);

}  // namespace qx::lite
