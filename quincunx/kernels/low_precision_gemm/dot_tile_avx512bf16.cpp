#include <immintrin.h>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile.h"

namespace qx::kernels {
namespace dot_avx512bf16 {
namespace {

// 28 sums, two rows of B and a pair of A fill 31 of 32 registers.
template <int kRows, int kPanels>
void multiply(const DotTile& tile) {
  __m512 sums[kRows][kPanels];
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    QX_UNROLL for (int p = 0; p < kPanels; ++p) sums[r][p] = _mm512_setzero_ps();
  }
  const int32_t* a = tile.a;
  const uint8_t* b = tile.b;
  for (int64_t i = tile.num_rows_of_b; i != 0; --i) {
    __m512bh weights[kPanels];
    QX_UNROLL for (int p = 0; p < kPanels; ++p) {
      weights[p] = (__m512bh)_mm512_loadu_si512(b + p * tile.panel_stride);
    }
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(a[r]);
      QX_UNROLL for (int p = 0; p < kPanels; ++p) sums[r][p] = _mm512_dpbf16_ps(sums[r][p], weights[p], pair);
    }
    a += kRows;
    b += 64;
  }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    QX_UNROLL for (int p = 0; p < kPanels; ++p) {
      float* c = tile.c + r * tile.c_row_stride + 16 * p;
      const __m512 sum = sums[r][p];
      _mm512_storeu_ps(c, tile.accumulate ? _mm512_add_ps(_mm512_loadu_ps(c), sum) : sum);
    }
  }
}

template <int kRows>
void multiply_rows(int64_t rows, int64_t panels, const DotTile& tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return multiply_rows<kRows - 1>(rows, panels, tile);
  } else {
    if (panels == 8) return multiply<1, 8>(tile);
    if (panels == 4) return multiply<1, 4>(tile);
  }
  return panels == 2 ? multiply<kRows, 2>(tile) : multiply<kRows, 1>(tile);
}

}  // namespace
}  // namespace dot_avx512bf16

void bfloat16_tile_avx512bf16(int64_t rows, int64_t panels, const DotTile& tile) {
  using namespace dot_avx512bf16;
  multiply_rows<kBFloat16ShapeAvx512Bf16.max_rows>(rows, panels, tile);
}

}  // namespace qx::kernels
