// Newton-Schulz on one matrix.
#pragma once

#include <cstdint>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"

namespace qx::kernels {

struct StridedFloats {
  float* data;
  int64_t row_stride;
  int64_t column_stride;
};

// Floats of scratch memory for a [rows, cols] matrix.
int64_t orthogonalise_workspace_size(int64_t rows, int64_t cols);

// output = the orthogonalised input, both [rows, cols] with rows, cols > 0; they may be the same. options.form is not
// kAuto. Uses parallel_for inside.
void orthogonalise(const StridedFloats& input, const StridedFloats& output, int64_t rows, int64_t cols,
                   const NewtonSchulzOptions& options, float* workspace);

}  // namespace qx::kernels
