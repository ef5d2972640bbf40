// Element-wise work on one rank's piece of one matrix, on tensors of any strides and of f32, f16 or bf16. Arithmetic is
// f32 and depends on the element alone, so the bits do not depend on how a matrix is sharded.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <string>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"

namespace qx::muon {

// Two-dimensional view of one matrix of a local tensor.
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // in elements
  int64_t column_stride = 0;
};

// Matrix `index` of `tensor`, leading dimensions flattened in row-major order. Fails when the tensor is not a CPU
// tensor of a supported dtype or its last two sizes are not rows x columns.
Result<MatrixView> matrix_view(const torch::stable::Tensor& tensor, int64_t index, int64_t rows, int64_t columns);

// How the momentum is advanced: m <- m + (1 - momentum) (g - m), u = nesterov ? g + momentum (m - g) : m.
struct MomentumRule {
  float momentum = 0.95f;
  bool nesterov = true;
};

// Where a row-major copy of a piece stands.
struct PackedPiece {
  float* data = nullptr;
  int64_t row_stride = 0;
};

// Writes u to `packed`. `state` and `grad` (same shape and dtype) stay as they are.
void pack_update(const MatrixView& state, const MatrixView& grad, const MomentumRule& rule, PackedPiece packed);

// The same for a gradient of zeros.
void pack_without_gradient(const MatrixView& state, const MomentumRule& rule, PackedPiece packed);

// Advances `state` by `grad`.
void advance_momentum(const MatrixView& state, const MatrixView& grad, const MomentumRule& rule);

// The same for a gradient of zeros.
void decay_momentum(const MatrixView& state, const MomentumRule& rule);

// param <- decay param - step update.
void apply_update(const MatrixView& param, PackedPiece update, float decay, float step);

}  // namespace qx::muon
