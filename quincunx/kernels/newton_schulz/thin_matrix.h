// Newton-Schulz on a matrix with few rows and very many columns: its Gram matrix is computed once, in double precision,
// all steps run on it, and their product is applied once. The wide matrix is read twice and written once.
#pragma once

#include <cstdint>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"

namespace qx::kernels {

// Whether kGram takes this form. Double precision costs twice as much an operation, so that it pays where the small
// products are few beside the wide ones, and a second pass over the wide matrix is saved.
inline bool is_thin(int64_t rows, int64_t cols) { return rows <= 128 && cols >= 16 * rows; }

// Floats of scratch memory for a [rows, cols] matrix.
int64_t thin_workspace_size(int64_t rows, int64_t cols);

enum class ThinResult : uint8_t { kDone, kZero, kNotFinite, kOutOfRange };

// destination = the orthogonalised source, both [rows, cols] with adjacent elements in a row; they may be the same. For
// any other result than kDone nothing is written; kOutOfRange: the largest magnitude lies outside 2^-40 ... 2^40. Uses
// parallel_for inside.
ThinResult orthogonalise_thin(const float* source, int64_t source_stride, float* destination,
                              int64_t destination_stride, int64_t rows, int64_t cols,
                              const NewtonSchulzOptions& options, float* workspace);

}  // namespace qx::kernels
