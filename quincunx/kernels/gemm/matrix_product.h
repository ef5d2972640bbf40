// The product behind gemm, on raw pointers, for kernels that have checked their operands.
#pragma once

#include <cstdint>

#include "quincunx/kernels/gemm/gemm.h"

namespace qx::kernels {

inline constexpr int64_t kPanelColumns = 16;

// Longest run of K that is summed before it is added to the output. K is cut into equal blocks of at most this length,
// so that the order of summation depends on K alone. Chosen on a Zen 4 core (512 and 768 alike; 768 saves a pass over C
// where K = 768).
inline constexpr int64_t kMaxInnerBlock = 768;

inline int64_t num_panels(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

struct StridedMatrix {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

struct Epilogue {
  float scale = 1.0f;
  const float* bias = nullptr;  // contiguous
  Activation activation = Activation::kNone;
  const float* residual = nullptr;  // rows contiguous
  int64_t residual_row_stride = 0;
  const float* row_scale = nullptr;  // contiguous
  const float* up_bias = nullptr;    // contiguous; of a gated product

  bool is_identity() const {
    return scale == 1.0f && bias == nullptr && activation == Activation::kNone && residual == nullptr &&
           row_scale == nullptr;
  }
};

struct MatrixProduct {
  StridedMatrix a;  // [rows, inner]
  int64_t rows = 0;
  int64_t inner = 0;
  const float* packed_b = nullptr;  // [inner, columns] in panels
  int64_t columns = 0;
  float* c = nullptr;  // rows contiguous
  int64_t c_row_stride = 0;
  Epilogue epilogue;
  // For a product that is symmetric: tiles that lie wholly below the diagonal are not written.
  bool upper_only = false;
  // packed_b holds a panel of a gate and one of a second matrix in turn, and `columns` of each:
  // c = row_scale * activation(scale * A gate + bias) * (scale * A up + up_bias) + residual.
  bool gated = false;
};

// On as many threads as parallel_for gives.
void multiply(const MatrixProduct& product);

// Packs b[inner, columns] into `packed`; see PackedMatrix.
void pack_panels(const StridedMatrix& b, int64_t inner, int64_t columns, float* packed);

}  // namespace qx::kernels
