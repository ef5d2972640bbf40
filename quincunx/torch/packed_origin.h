// The last line of a packed weight: what it was made of. The size alone does not tell, as columns are padded.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>

#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

namespace qx::torch_bridge {

inline constexpr int64_t kPackedOriginBytes = 64;
inline constexpr int64_t kPackedOriginFloats = kPackedOriginBytes / 4;

struct PackedOrigin {
  // By pack_linear_weight and so on. Memory that is not packed may hold any number.
  enum class Packer : int64_t { kLinear = 1, kGated, kGrouped, kLowPrecision };

  Packer packer;
  std::array<int64_t, 3> shape;                                     // groups, out_features, in_features
  kernels::WeightFormat format = kernels::WeightFormat::kBFloat16;  // of kLowPrecision

  bool operator==(const PackedOrigin&) const = default;
};

// `packed`: float32 or uint8, new and dense, with room for the origin behind the packed weight.
void write_origin(const torch::stable::Tensor& packed, const PackedOrigin& origin);

// The data of `packed`, which must hold `size` elements and then `expected`; throws what names both otherwise.
const void* packed_data(const torch::stable::Tensor& packed, int64_t size, const PackedOrigin& expected);

}  // namespace qx::torch_bridge
