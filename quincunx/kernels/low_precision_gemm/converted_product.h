// Products in f32 with weights that are widened on the way: in registers where A has a few rows, else a block of a
// panel at a time into a buffer that all rows then read.
#pragma once

#include "quincunx/kernels/low_precision_gemm/low_precision_product.h"

namespace qx::kernels {

// The activations keep their values: product.input is kNone.
void multiply_converted(const LowPrecisionProduct& product);

// The epilogue on rows [row, row + rows) and columns [column, column + columns), whose sums start at c.
void finish_tile(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns, float* c,
                 int64_t c_row_stride);

}  // namespace qx::kernels
