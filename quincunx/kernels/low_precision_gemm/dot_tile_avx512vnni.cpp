#include <immintrin.h>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile.h"

namespace qx::kernels {
namespace dot_avx512vnni {
namespace {

constexpr int kRowBytes = 64;

__m512i load_row(const uint8_t* b) { return _mm512_loadu_si512(b); }

template <int kRows, int kPanels>
void add_products(__m512i (&sums)[kRows][kPanels], const __m512i (&weights)[kPanels], const int32_t* a) {
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    const __m512i quad = _mm512_set1_epi32(a[r]);
    QX_UNROLL for (int p = 0; p < kPanels; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], weights[p], quad);
  }
}

template <int kRows, int kPanels>
void start_sums(__m512i (&sums)[kRows][kPanels], const int32_t* a_starts) {
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    const __m512i start = _mm512_set1_epi32(a_starts[r]);
    QX_UNROLL for (int p = 0; p < kPanels; ++p) sums[r][p] = start;
  }
}

template <int kRows, int kPanels>
struct Int8 {
  static void multiply(const DotTile& tile) {
    __m512i sums[kRows][kPanels];
    start_sums(sums, tile.a_starts);
    const int32_t* a = tile.a;
    const uint8_t* b = tile.b;
    for (int64_t i = tile.num_rows_of_b; i != 0; --i) {
      __m512i weights[kPanels];
      QX_UNROLL for (int p = 0; p < kPanels; ++p) weights[p] = load_row(b + p * tile.panel_stride);
      add_products(sums, weights, a);
      a += kRows;
      b += kRowBytes;
    }
    const __m512i zero_point = _mm512_set1_epi32(tile.zero_point);
    QX_UNROLL for (int p = 0; p < kPanels; ++p) {
      const __m512 scale = _mm512_loadu_ps(tile.b_scales + p * tile.panel_stride);
      const __m512i shift = _mm512_mullo_epi32(zero_point, load_row(tile.b_sums + p * tile.panel_stride));
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        float* c = tile.c + r * tile.c_row_stride + 16 * p;
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][p], shift));
        const __m512 value = _mm512_mul_ps(_mm512_mul_ps(sum, scale), _mm512_set1_ps(tile.a_scales[r]));
        _mm512_storeu_ps(c, tile.accumulate ? _mm512_add_ps(_mm512_loadu_ps(c), value) : value);
      }
    }
  }
};

struct Bytes {
  static constexpr int kGroupRows = 8;

  template <int kRows, int kPanels>
  static const int32_t* add_row(__m512i (&sums)[kRows][kPanels], const uint8_t* b, int64_t stride, const int32_t* a) {
    __m512i weights[kPanels];
    QX_UNROLL for (int p = 0; p < kPanels; ++p) weights[p] = load_row(b + p * stride);
    add_products(sums, weights, a);
    return a + kRows;
  }
};

struct Nibbles {
  static constexpr int kGroupRows = 4;

  template <int kRows, int kPanels>
  static const int32_t* add_row(__m512i (&sums)[kRows][kPanels], const uint8_t* b, int64_t stride, const int32_t* a) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i low[kPanels], high[kPanels];
    QX_UNROLL for (int p = 0; p < kPanels; ++p) {
      const __m512i pairs = load_row(b + p * stride);
      low[p] = _mm512_and_si512(pairs, mask);
      high[p] = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), mask);
    }
    add_products(sums, low, a);
    add_products(sums, high, a + kRows);
    return a + 2 * kRows;
  }
};

template <typename Weights>
struct Grouped {
  template <int kRows, int kPanels>
  struct Tile {
    static void multiply(const DotTile& tile) {
      __m512 totals[kRows][kPanels];
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        QX_UNROLL for (int p = 0; p < kPanels; ++p) totals[r][p] = _mm512_setzero_ps();
      }
      const int32_t* a = tile.a;
      const uint8_t* b = tile.b;
      for (int64_t group = 0; group < tile.num_rows_of_b; ++group) {
        __m512i sums[kRows][kPanels];
        start_sums(sums, tile.a_starts + group * kRows);
        QX_UNROLL for (int i = 0; i < Weights::kGroupRows; ++i) {
          a = Weights::template add_row<kRows, kPanels>(sums, b, tile.panel_stride, a);
          b += kRowBytes;
        }
        QX_UNROLL for (int p = 0; p < kPanels; ++p) {
          const auto* scales = reinterpret_cast<const __m256i*>(b + p * tile.panel_stride);
          const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(scales));
          QX_UNROLL for (int r = 0; r < kRows; ++r) {
            const __m512 sum = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][p]), scale);
            totals[r][p] = _mm512_fmadd_ps(sum, _mm512_set1_ps(tile.a_scales[group * kRows + r]), totals[r][p]);
          }
        }
        b += kRowBytes / 2;
      }
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        QX_UNROLL for (int p = 0; p < kPanels; ++p) {
          _mm512_storeu_ps(tile.c + r * tile.c_row_stride + 16 * p, totals[r][p]);
        }
      }
    }
  };
};

template <template <int, int> class Tile, int kRows, int kSinglePanels>
void multiply_rows(int64_t rows, int64_t panels, const DotTile& tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return multiply_rows<Tile, kRows - 1, kSinglePanels>(rows, panels, tile);
  } else {
    if constexpr (kSinglePanels >= 8) {
      if (panels == 8) return Tile<1, 8>::multiply(tile);
    }
    if (panels == 4) return Tile<1, 4>::multiply(tile);
  }
  return panels == 2 ? Tile<kRows, 2>::multiply(tile) : Tile<kRows, 1>::multiply(tile);
}

}  // namespace
}  // namespace dot_avx512vnni

void int8_tile_avx512vnni(int64_t rows, int64_t panels, const DotTile& tile) {
  constexpr DotTileShape kShape = kInt8ShapeAvx512Vnni;
  using namespace dot_avx512vnni;
  multiply_rows<Int8, kShape.max_rows, kShape.single_row_panels>(rows, panels, tile);
}
void int8_grouped_tile_avx512vnni(int64_t rows, int64_t panels, const DotTile& tile) {
  constexpr DotTileShape kShape = kGroupedShapeAvx512Vnni;
  using namespace dot_avx512vnni;
  multiply_rows<Grouped<Bytes>::Tile, kShape.max_rows, kShape.single_row_panels>(rows, panels, tile);
}
void int4_grouped_tile_avx512vnni(int64_t rows, int64_t panels, const DotTile& tile) {
  constexpr DotTileShape kShape = kGroupedShapeAvx512Vnni;
  using namespace dot_avx512vnni;
  multiply_rows<Grouped<Nibbles>::Tile, kShape.max_rows, kShape.single_row_panels>(rows, panels, tile);
}

}  // namespace qx::kernels
