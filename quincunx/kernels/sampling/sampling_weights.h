// The vector part of sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qx::kernels {

// Tokens whose weights are summed in f32 before they join an f64 sum.
inline constexpr int64_t kWeightBlock = 1024;

struct LargestLogit {
  float value;  // -inf where all are
  bool has_nan;
};
LargestLogit largest_logit(std::span<const float> logits);

// weights[i] = exp((logits[i] - largest) * inverse_temperature), within 2 ulp, zero below the normal numbers; sums[b]
// is the sum of block b. The same bits on every instruction set: no fused operations, sixteen sums of every sixteenth
// element, added up in order.
void fill_weights(std::span<const float> logits, float largest, float inverse_temperature, std::span<float> weights,
                  std::span<float> sums);

}  // namespace qx::kernels
