// Reproducible test data and short ways to make views.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

inline std::vector<float> normal_values(int64_t count, uint32_t seed, float mean = 0, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

inline TensorView contiguous_view(void* data, DType dtype, const std::vector<int64_t>& shape) {
  return TensorView::contiguous(data, dtype, shape).value();
}
inline TensorView f32_view(std::vector<float>& values, const std::vector<int64_t>& shape) {
  return contiguous_view(values.data(), DType::kFloat32, shape);
}
inline TensorView strided_view(void* data, DType dtype, const std::vector<int64_t>& shape,
                               const std::vector<int64_t>& strides) {
  return TensorView::strided(data, dtype, shape, strides).value();
}

inline std::vector<uint16_t> narrowed(const std::vector<float>& values, DType dtype) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (const float v : values) {
    bits.push_back(dtype == DType::kBFloat16 ? bfloat16_bits_from_float(v) : float16_bits_from_float(v));
  }
  return bits;
}
inline std::vector<float> widened(const std::vector<uint16_t>& bits, DType dtype) {
  std::vector<float> values;
  values.reserve(bits.size());
  for (const uint16_t b : bits) {
    values.push_back(dtype == DType::kBFloat16 ? float_from_bfloat16_bits(b) : float_from_float16_bits(b));
  }
  return values;
}

}  // namespace qx::kernels
