// The loops of Newton-Schulz that exist once for each instruction set. Matrices are row-major and wide, padded with
// zeros to a multiple of 16 columns.
#pragma once

#include <cstdint>

namespace qx::kernels::newton_schulz_kernel {

// The largest bit pattern of |x|: the magnitudes of floats are ordered as their bits are, NaN and infinity above all.
uint32_t max_magnitude_bits(const float* x, int64_t count);

void scale_in_place(float* x, int64_t count, float factor);

// destination[j * destination_stride + i] = source[i * source_stride + j] for i < rows, j < columns.
void transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* destination,
               int64_t destination_stride);

// gram[rows, rows] = x x^T over `columns` columns, a multiple of 16: rows [row_begin, row_end) of it, on and above the
// diagonal. Reads x as it lies, where packing would be a large part of the work. kGramColumns at a time keep the rows
// of a tile in the L1 cache; row_begin is a multiple of kGramRowBlock.
inline constexpr int64_t kGramColumns = 1024;
inline constexpr int64_t kGramRowBlock = 48;
void gram_of_rows(const float* x, int64_t rows, int64_t row_begin, int64_t row_end, int64_t columns, int64_t stride,
                  float* gram);

// Floats of scratch memory that apply needs.
int64_t apply_workspace_size(int64_t rows);

// Where apply reads and writes: rows of adjacent elements. The two may be the same.
struct RowsFromTo {
  const float* source;
  int64_t source_stride;
  float* destination;
  int64_t destination_stride;
};

// destination = q source for q[rows, rows], a stripe of columns at a time.
void apply(const float* q, const RowsFromTo& matrix, int64_t rows, int64_t columns, float* workspace);

}  // namespace qx::kernels::newton_schulz_kernel
