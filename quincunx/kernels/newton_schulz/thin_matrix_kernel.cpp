#include "quincunx/kernels/newton_schulz/thin_matrix_kernel.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/newton_schulz/thin_matrix_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/newton_schulz/dot_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels::thin_matrix_kernel {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = ::qx::kernels::HWY_NAMESPACE;

constexpr int kSquareVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr int kSquareRows = 4;

struct DotProducts {
  template <int kLeft, int kRight>
  static void Multiply(const tiles::DotTile<double>& tile) {
    const hn::CappedTag<double, 8> d;
    const hn::Rebind<float, decltype(d)> narrow;
    using V = hn::Vec<decltype(d)>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    V sums[kLeft][kRight];
    QX_UNROLL for (int i = 0; i < kLeft; ++i) { QX_UNROLL for (int j = 0; j < kRight; ++j) sums[i][j] = hn::Zero(d); }
    int64_t k = 0;
    for (; k + lanes <= tile.columns; k += lanes) {
      V left[kLeft];
      QX_UNROLL for (int i = 0; i < kLeft; ++i) {
        left[i] = hn::PromoteTo(d, hn::LoadU(narrow, tile.left + i * tile.stride + k));
      }
      QX_UNROLL for (int j = 0; j < kRight; ++j) {
        const V right = hn::PromoteTo(d, hn::LoadU(narrow, tile.right + j * tile.stride + k));
        QX_UNROLL for (int i = 0; i < kLeft; ++i) sums[i][j] = hn::MulAdd(left[i], right, sums[i][j]);
      }
    }
    for (int i = 0; i < kLeft; ++i) {
      for (int j = 0; j < kRight; ++j) {
        double sum = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
        for (int64_t rest = k; rest < tile.columns; ++rest) {
          sum += static_cast<double>(tile.left[i * tile.stride + rest]) * tile.right[j * tile.stride + rest];
        }
        tile.sums[i * tile.sums_stride + j] = sum;
      }
    }
  }
};

void Gram(const float* x, int64_t rows, int64_t columns, int64_t stride, double* gram) {
  tiles::UpperGramTiles<DotProducts>(x, rows, 0, rows, columns, stride, gram);
}

// kSquareRows rows and kVectors vectors of columns of left right.
template <int kVectors>
void MultiplySquareTile(const double* left, const double* right, int64_t size, double* out) {
  const hn::CappedTag<double, 8> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kSquareRows][kVectors];
  QX_UNROLL for (int r = 0; r < kSquareRows; ++r) {
    QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < size; ++k) {
    V row[kVectors];
    QX_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, right + k * size + v * lanes);
    QX_UNROLL for (int r = 0; r < kSquareRows; ++r) {
      const V element = hn::Set(d, left[r * size + k]);
      QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, row[v], sums[r][v]);
    }
  }
  QX_UNROLL for (int r = 0; r < kSquareRows; ++r) {
    QX_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, out + r * size + v * lanes);
  }
}

void Multiply(const double* left, const double* right, int64_t size, double* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::CappedTag<double, 8>()));
  for (int64_t column = 0; column < size;) {
    const int64_t vectors = std::min<int64_t>(kSquareVectors, (size - column) / lanes);
    for (int64_t row = 0; row < size; row += kSquareRows) {
      const double* a = left + row * size;
      double* c = out + row * size + column;
      switch (vectors) {
        case 1: MultiplySquareTile<1>(a, right + column, size, c); break;
        case 2: MultiplySquareTile<2>(a, right + column, size, c); break;
        case 3: MultiplySquareTile<3>(a, right + column, size, c); break;
        default: MultiplySquareTile<kSquareVectors>(a, right + column, size, c); break;
      }
    }
    column += vectors * lanes;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels::thin_matrix_kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels::thin_matrix_kernel {

HWY_EXPORT(Gram);
HWY_EXPORT(Multiply);

void gram(const float* x, int64_t rows, int64_t columns, int64_t stride, double* gram) {
  HWY_DYNAMIC_DISPATCH(Gram)(x, rows, columns, stride, gram);
}

void multiply(const double* left, const double* right, int64_t size, double* out) {
  HWY_DYNAMIC_DISPATCH(Multiply)(left, right, size, out);
}

}  // namespace qx::kernels::thin_matrix_kernel
#endif  // HWY_ONCE
