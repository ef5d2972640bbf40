// Rows to columns: between tensors whose channels are adjacent and tensors whose pixels are.
#if defined(QUINCUNX_KERNELS_CONVOLUTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_CONVOLUTION_TRANSPOSE_INL_H_
#undef QUINCUNX_KERNELS_CONVOLUTION_TRANSPOSE_INL_H_
#else
#define QUINCUNX_KERNELS_CONVOLUTION_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
// target[j * target_stride + i] = source[i * source_stride + j] for i < rows, j < columns.
inline void TransposeRows(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* target,
                          int64_t target_stride) {
  const int64_t whole_rows = rows / 4 * 4;
  const int64_t whole_columns = columns / 4 * 4;
  // Sixteen columns, a cache line, at a time: no line of the source is read twice, whatever the strides.
  for (int64_t first = 0; first < whole_columns; first += 16) {
    const int64_t end = first + 16 < whole_columns ? first + 16 : whole_columns;
    for (int64_t i = 0; i < whole_rows; i += 4) {
      for (int64_t j = first; j < end; j += 4) {
        Transpose4x4(source + i * source_stride + j, source_stride, target + j * target_stride + i, target_stride);
      }
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t begin = j < whole_columns ? whole_rows : 0;
    for (int64_t i = begin; i < rows; ++i) target[j * target_stride + i] = source[i * source_stride + j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
