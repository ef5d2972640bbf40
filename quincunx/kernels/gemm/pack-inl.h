// Packing: a strided tile of at most a few rows becomes [depth][width], the order in which the micro-kernel reads it.
#if defined(QUINCUNX_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_GEMM_PACK_INL_H_
#undef QUINCUNX_KERNELS_GEMM_PACK_INL_H_
#else
#define QUINCUNX_KERNELS_GEMM_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// packed[k * width + r] = source[r * row_stride + k] for four rows and four k.
HWY_INLINE void Transpose4x4(const float* source, int64_t row_stride, float* packed, int64_t width) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t r = 0; r < 4; ++r) packed[k * width + r] = source[r * row_stride + k];
  }
#else
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pairs;
  const auto row0 = hn::LoadU(d, source);
  const auto row1 = hn::LoadU(d, source + row_stride);
  const auto row2 = hn::LoadU(d, source + 2 * row_stride);
  const auto row3 = hn::LoadU(d, source + 3 * row_stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row2, row3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, packed);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, packed + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, packed + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, packed + 3 * width);
#endif
}

// Rows [r_begin, rows) and k in [k_begin, depth), one element after the other.
HWY_INLINE void PackElements(const float* source, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k_begin,
                             int64_t depth, int64_t width, float* packed) {
  for (int64_t k = k_begin; k < depth; ++k) {
    for (int64_t r = 0; r < rows; ++r) packed[k * width + r] = source[r * row_stride + k * k_stride];
  }
}

// Sixteen rows whose elements are adjacent for each k.
HWY_INLINE void PackSixteenAdjacent(const float* source, int64_t k_stride, int64_t depth, float* packed) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t r = 0; r < 16; r += lanes) hn::StoreU(hn::LoadU(d, source + k * k_stride + r), d, packed + k * 16 + r);
  }
}

// packed[k * width + r] = source[r * row_stride + k * k_stride]; rows beyond `rows` are zero.
inline void PackTile(const float* source, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t depth,
                     int64_t width, float* packed) {
  if (rows < width) std::fill(packed, packed + depth * width, 0.0f);
  if (row_stride == 1 && rows == 16 && width == 16) return PackSixteenAdjacent(source, k_stride, depth, packed);
  if (k_stride != 1 || rows < 4) return PackElements(source, row_stride, k_stride, rows, 0, depth, width, packed);
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    for (int64_t r = 0; r + 4 <= rows; r += 4) {
      Transpose4x4(source + r * row_stride + k, row_stride, packed + k * width + r, width);
    }
    // The last rows once more with some before them: a store of fewer than four would need a mask.
    if (rows % 4 != 0) {
      Transpose4x4(source + (rows - 4) * row_stride + k, row_stride, packed + k * width + rows - 4, width);
    }
  }
  PackElements(source, row_stride, k_stride, rows, k, depth, width, packed);
}

// copy[r * depth + k] = source[r * row_stride + k * k_stride]: rows of adjacent elements.
inline void CopyToRows(const float* source, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t depth,
                       float* copy) {
  if (row_stride != 1) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < depth; ++k) copy[r * depth + k] = source[r * row_stride + k * k_stride];
    }
    return;
  }
  // Sixteen rows at a time: whole cache lines of the source are read.
  for (int64_t r_begin = 0; r_begin < rows; r_begin += 16) {
    const int64_t r_end = std::min(r_begin + 16, rows);
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      int64_t r = r_begin;
      for (; r + 4 <= r_end; r += 4) Transpose4x4(source + k * k_stride + r, k_stride, copy + r * depth + k, depth);
      for (; r < r_end; ++r) {
        for (int64_t i = k; i < k + 4; ++i) copy[r * depth + i] = source[r + i * k_stride];
      }
    }
    for (; k < depth; ++k) {
      for (int64_t r = r_begin; r < r_end; ++r) copy[r * depth + k] = source[r + k * k_stride];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
