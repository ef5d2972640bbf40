// The arithmetic of reduce, one element after another: the oracle, and the path of types without a vector kernel.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/kernels/reduce/reduce.h"

namespace qx::kernels {

void reduce_reference(ReduceKind kind, DType dtype, std::span<const void* const> sources, int64_t count,
                      void* destination, double multiplier = 1.0);

}  // namespace qx::kernels
