// Packed forms of weights, kept for later products. One is used only for the very tensor it was made of, unchanged:
// same memory and strides, same version counter, and the same number at one place of each row and each column (a change
// through `.data` does not count versions). An entry goes with its tensor: Python watches that, see
// quincunx::watch_weight.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "quincunx/tensor/tensor_view.h"

namespace qx::torch_bridge {

class PackedWeight;

struct PackedWeightCounters {
  int64_t made = 0;   // packed, also again after a change
  int64_t used = 0;   // found as they were
  int64_t kept = 0;   // at this moment
  int64_t bytes = 0;  // that these take
};

// The packed `right_operand`, a view of `weight`; null where it cannot be kept: tensors without a version counter. All
// thread-safe.
std::shared_ptr<const PackedWeight> find_or_pack(const torch::stable::Tensor& weight, const TensorView& right_operand);
std::span<const float> packed_floats(const PackedWeight& packed);
// What Python calls when the tensor of an entry is gone.
void drop_packed_weight(int64_t entry);
PackedWeightCounters packed_weight_counters();

}  // namespace qx::torch_bridge
