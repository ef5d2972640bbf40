// Gram matrices of rows as they lie, in tiles of dot products, for sums of either precision.
#if defined(QUINCUNX_KERNELS_NEWTON_SCHULZ_DOT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_NEWTON_SCHULZ_DOT_TILES_INL_H_
#undef QUINCUNX_KERNELS_NEWTON_SCHULZ_DOT_TILES_INL_H_
#else
#define QUINCUNX_KERNELS_NEWTON_SCHULZ_DOT_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// A tile is kLeft * kRight sums, kLeft vectors and one more in registers.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kDotLeftRows = 4;
#else
inline constexpr int kDotLeftRows = 3;
#endif
inline constexpr int kDotRightRows = 4;

template <typename Sum>
struct DotTile {
  const float* left;
  const float* right;
  int64_t stride;
  int64_t columns;
  Sum* sums;
  int64_t sums_stride;
};

template <class Products, typename Sum, int kLeft>
void MultiplyDotTile(int64_t right, const DotTile<Sum>& tile) {
  switch (right) {
    case 1: return Products::template Multiply<kLeft, 1>(tile);
    case 2: return Products::template Multiply<kLeft, 2>(tile);
    case 3: return Products::template Multiply<kLeft, 3>(tile);
    default: return Products::template Multiply<kLeft, kDotRightRows>(tile);
  }
}

// gram[i][j] for rows i in [row_begin, row_end), which start a tile, and the tiles of columns that hold something on or
// above the diagonal. Products::Multiply<kLeft, kRight>(tile) stores the dot products of kLeft rows with kRight rows.
template <class Products, typename Sum>
void UpperGramTiles(const float* x, int64_t rows, int64_t row_begin, int64_t row_end, int64_t columns, int64_t stride,
                    Sum* gram) {
  for (int64_t i = row_begin; i < row_end; i += kDotLeftRows) {
    const int64_t left = std::min<int64_t>(kDotLeftRows, row_end - i);
    for (int64_t j = i / kDotRightRows * kDotRightRows; j < rows; j += kDotRightRows) {
      const int64_t right = std::min<int64_t>(kDotRightRows, rows - j);
      const DotTile<Sum> tile{x + i * stride, x + j * stride, stride, columns, gram + i * rows + j, rows};
      switch (left) {
        case 1: MultiplyDotTile<Products, Sum, 1>(right, tile); break;
        case 2: MultiplyDotTile<Products, Sum, 2>(right, tile); break;
        case 3: MultiplyDotTile<Products, Sum, 3>(right, tile); break;
        default: MultiplyDotTile<Products, Sum, kDotLeftRows>(right, tile); break;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
