// Random matrices and views of them, for the tests of this folder.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

inline TensorView matrix(std::vector<float>& data, int64_t rows, int64_t columns) {
  return TensorView::contiguous(data.data(), DType::kFloat32, std::array{rows, columns}).value();
}

inline TensorView vector(std::vector<float>& data) {
  return TensorView::contiguous(data.data(), DType::kFloat32, std::array{static_cast<int64_t>(data.size())}).value();
}

inline TensorView batch(std::vector<float>& data, int64_t count, int64_t rows, int64_t columns) {
  return TensorView::contiguous(data.data(), DType::kFloat32, std::array{count, rows, columns}).value();
}

}  // namespace qx::kernels
