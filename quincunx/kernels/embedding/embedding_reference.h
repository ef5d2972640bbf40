// The scalar reference of embedding.h's bags, in double precision.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/kernels/embedding/embedding.h"

namespace qx::kernels {

// table: rows of output.size() elements one after another.
void embedding_bag_reference(std::span<const double> table, std::span<const int64_t> bag, BagMode mode,
                             std::span<double> output);

}  // namespace qx::kernels
