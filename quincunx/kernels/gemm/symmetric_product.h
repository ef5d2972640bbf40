// Products that are symmetric: only the tiles on and above the diagonal are computed, the rest is mirrored.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// output[M, M] = scale * A A^T for a[M, K], f32 with any strides; the output must not overlap a. Exactly symmetric, and
// the bits of its upper half are those of gemm. Thread-safe.
Status gram(const TensorView& a, const TensorView& output, float scale = 1.0f);

// output = a I + b X + c X X for a symmetric x[M, M]: a step of a polynomial iteration on a Gram matrix. Only a product
// of symmetric matrices that commute is symmetric, as X X is; that x is symmetric is not checked. output must not
// overlap x. Thread-safe.
struct PolynomialStep {
  float a = 0.0f;
  float b = 0.0f;
  float c = 0.0f;
};
Status symmetric_polynomial(const TensorView& x, const PolynomialStep& step, const TensorView& output);

// square[i, j] = square[j, i] for j < i, rows `stride` elements apart.
void mirror_upper_half(float* square, int64_t rows, int64_t stride);

}  // namespace qx::kernels
