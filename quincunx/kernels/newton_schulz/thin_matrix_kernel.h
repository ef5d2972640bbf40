// The loops of the thin form of Newton-Schulz that exist once for each instruction set. Sums are in double precision:
// products of floats are exact there, so that squaring the singular values loses none of them.
#pragma once

#include <cstdint>

namespace qx::kernels::thin_matrix_kernel {

// gram[rows, rows] = x x^T over `columns` columns, on and above the diagonal. Rows lie `stride` floats apart.
void gram(const float* x, int64_t rows, int64_t columns, int64_t stride, double* gram);

// Square matrices are padded with zeros to a multiple of this many rows and columns.
inline constexpr int64_t kSquareMultiple = 8;

// out = left right for padded [size, size] matrices; out is neither of the two.
void multiply(const double* left, const double* right, int64_t size, double* out);

}  // namespace qx::kernels::thin_matrix_kernel
