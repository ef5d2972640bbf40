// The scalar reference of top_k.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qx::kernels {

// The indices of a row's elements in order.
std::vector<int64_t> sorted_indices_reference(std::span<const float> x, bool descending);

}  // namespace qx::kernels
