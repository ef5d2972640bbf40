#include <immintrin.h>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile.h"

namespace qx::kernels {
namespace dot_avx2 {
namespace {

constexpr int kRowBytes = 64;
constexpr int kVectorBytes = 32;

// Vector v of a row of panels: two of 8 columns make a panel.
__m256i load_half_row(const uint8_t* b, int64_t panel_stride, int v) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + v / 2 * panel_stride + v % 2 * kVectorBytes));
}

// Four k of 8 columns: the even and the odd ones become words, which vpmaddwd multiplies without saturation.
template <int kRows, int kVectors>
void add_bytes(__m256i (&sums)[kRows][kVectors], const uint8_t* b, int64_t panel_stride, const int32_t* a) {
  const __m256i low_bytes = _mm256_set1_epi16(255);
  QX_UNROLL for (int v = 0; v < kVectors; ++v) {
    const __m256i quads = load_half_row(b, panel_stride, v);
    const __m256i even = _mm256_and_si256(quads, low_bytes);
    const __m256i odd = _mm256_srli_epi16(quads, 8);
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(even, _mm256_set1_epi32(a[r])));
      sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(odd, _mm256_set1_epi32(a[kRows + r])));
    }
  }
}

template <int kRows, int kVectors>
void start_sums(__m256i (&sums)[kRows][kVectors], const int32_t* a_starts) {
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    const __m256i start = _mm256_set1_epi32(a_starts[r]);
    QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = start;
  }
}

template <int kRows, int kPanels>
struct Int8 {
  static constexpr int kVectors = 2 * kPanels;

  static void multiply(const DotTile& tile) {
    __m256i sums[kRows][kVectors];
    start_sums(sums, tile.a_starts);
    const int32_t* a = tile.a;
    const uint8_t* b = tile.b;
    for (int64_t i = tile.num_rows_of_b; i != 0; --i) {
      add_bytes(sums, b, tile.panel_stride, a);
      a += 2 * kRows;
      b += kRowBytes;
    }
    const __m256i zero_point = _mm256_set1_epi32(tile.zero_point);
    QX_UNROLL for (int v = 0; v < kVectors; ++v) {
      const __m256 scale = _mm256_castsi256_ps(load_half_row(tile.b_scales, tile.panel_stride, v));
      const __m256i shift = _mm256_mullo_epi32(zero_point, load_half_row(tile.b_sums, tile.panel_stride, v));
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        float* c = tile.c + r * tile.c_row_stride + 8 * v;
        const __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[r][v], shift));
        const __m256 value = _mm256_mul_ps(_mm256_mul_ps(sum, scale), _mm256_set1_ps(tile.a_scales[r]));
        _mm256_storeu_ps(c, tile.accumulate ? _mm256_add_ps(_mm256_loadu_ps(c), value) : value);
      }
    }
  }
};

struct Bytes {
  static constexpr int kUnitsPerGroup = 16;
  static constexpr int kBytesPerGroup = 8 * kRowBytes;

  template <int kRows, int kVectors>
  static void group(__m256i (&sums)[kRows][kVectors], const uint8_t* b, int64_t panel_stride, const int32_t* a,
                    const int32_t* a_starts) {
    start_sums(sums, a_starts);
    for (int i = 0; i < 8; ++i) add_bytes(sums, b + i * kRowBytes, panel_stride, a + 2 * i * kRows);
  }
};

struct Nibbles {
  static constexpr int kUnitsPerGroup = 8;
  static constexpr int kBytesPerGroup = 4 * kRowBytes;

  // vpmaddubsw adds two products of at most 15 * 127; eight of those sums stay below 2^15.
  template <int kRows, int kVectors>
  static void group(__m256i (&sums)[kRows][kVectors], const uint8_t* b, int64_t panel_stride, const int32_t* a,
                    const int32_t* a_starts) {
    const __m256i mask = _mm256_set1_epi8(15);
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_setzero_si256();
    }
    QX_UNROLL for (int i = 0; i < 4; ++i) {
      QX_UNROLL for (int v = 0; v < kVectors; ++v) {
        const __m256i pairs = load_half_row(b + i * kRowBytes, panel_stride, v);
        const __m256i low = _mm256_and_si256(pairs, mask);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), mask);
        QX_UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256i first = _mm256_set1_epi32(a[2 * i * kRows + r]);
          const __m256i second = _mm256_set1_epi32(a[(2 * i + 1) * kRows + r]);
          sums[r][v] = _mm256_add_epi16(sums[r][v], _mm256_maddubs_epi16(low, first));
          sums[r][v] = _mm256_add_epi16(sums[r][v], _mm256_maddubs_epi16(high, second));
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m256i start = _mm256_set1_epi32(a_starts[r]);
      QX_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm256_add_epi32(_mm256_madd_epi16(sums[r][v], ones), start);
      }
    }
  }
};

template <typename Weights>
struct Grouped {
  template <int kRows, int kPanels>
  struct Tile {
    static constexpr int kVectors = 2 * kPanels;

    static void multiply(const DotTile& tile) {
      __m256 totals[kRows][kVectors];
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        QX_UNROLL for (int v = 0; v < kVectors; ++v) totals[r][v] = _mm256_setzero_ps();
      }
      const int32_t* a = tile.a;
      const uint8_t* b = tile.b;
      for (int64_t group = 0; group < tile.num_rows_of_b; ++group) {
        __m256i sums[kRows][kVectors];
        Weights::template group<kRows, kVectors>(sums, b, tile.panel_stride, a, tile.a_starts + group * kRows);
        a += Weights::kUnitsPerGroup * kRows;
        b += Weights::kBytesPerGroup;
        QX_UNROLL for (int v = 0; v < kVectors; ++v) {
          const uint8_t* scales = b + v / 2 * tile.panel_stride + v % 2 * (kVectorBytes / 2);
          const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
          QX_UNROLL for (int r = 0; r < kRows; ++r) {
            const __m256 sum = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][v]), scale);
            totals[r][v] = _mm256_fmadd_ps(sum, _mm256_set1_ps(tile.a_scales[group * kRows + r]), totals[r][v]);
          }
        }
        b += kRowBytes / 2;
      }
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        QX_UNROLL for (int v = 0; v < kVectors; ++v) {
          _mm256_storeu_ps(tile.c + r * tile.c_row_stride + 8 * v, totals[r][v]);
        }
      }
    }
  };
};

template <template <int, int> class Tile, int kRows>
void multiply_rows(int64_t rows, int64_t panels, const DotTile& tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return multiply_rows<Tile, kRows - 1>(rows, panels, tile);
  } else {
    if (panels == 4) return Tile<1, 4>::multiply(tile);
    if (panels == 2) return Tile<1, 2>::multiply(tile);
  }
  return Tile<kRows, 1>::multiply(tile);
}

}  // namespace
}  // namespace dot_avx2

void int8_tile_avx2(int64_t rows, int64_t panels, const DotTile& tile) {
  using namespace dot_avx2;
  multiply_rows<Int8, kInt8ShapeAvx2.max_rows>(rows, panels, tile);
}
void int8_grouped_tile_avx2(int64_t rows, int64_t panels, const DotTile& tile) {
  using namespace dot_avx2;
  multiply_rows<Grouped<Bytes>::Tile, kGroupedShapeAvx2.max_rows>(rows, panels, tile);
}
void int4_grouped_tile_avx2(int64_t rows, int64_t panels, const DotTile& tile) {
  using namespace dot_avx2;
  multiply_rows<Grouped<Nibbles>::Tile, kGroupedShapeAvx2.max_rows>(rows, panels, tile);
}

}  // namespace qx::kernels
