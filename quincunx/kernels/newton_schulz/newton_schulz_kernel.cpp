#include "quincunx/kernels/newton_schulz/newton_schulz_kernel.h"

#include <algorithm>

#include "quincunx/kernels/gemm/gemm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/newton_schulz/newton_schulz_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/gemm/micro_kernel-inl.h"
#include "quincunx/kernels/gemm/pack-inl.h"
#include "quincunx/kernels/newton_schulz/dot_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels::newton_schulz_kernel {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace gemm = ::qx::kernels::HWY_NAMESPACE;

uint32_t MaxMagnitudeBits(const float* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(di);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  auto bits = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  for (; i < count; ++i) {
    uint32_t element = 0;
    __builtin_memcpy(&element, x + i, sizeof(element));
    bits = std::max(bits, element & 0x7fffffffu);
  }
  return bits;
}

void ScaleInPlace(float* x, int64_t count, float factor) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factors), d, x + i);
  for (; i < count; ++i) x[i] *= factor;
}

void Transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* destination,
               int64_t destination_stride) {
  // Sixteen rows at a time: whole cache lines of the destination are written.
  for (int64_t i = 0; i < rows; i += 16) {
    const int64_t row_end = std::min(i + 16, rows);
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      int64_t r = i;
      for (; r + 4 <= row_end; r += 4) {
        gemm::Transpose4x4(source + r * source_stride + j, source_stride, destination + j * destination_stride + r,
                           destination_stride);
      }
      for (; r < row_end; ++r) {
        for (int64_t k = j; k < j + 4; ++k) destination[k * destination_stride + r] = source[r * source_stride + k];
      }
    }
    for (; j < columns; ++j) {
      for (int64_t r = i; r < row_end; ++r) destination[j * destination_stride + r] = source[r * source_stride + j];
    }
  }
}

struct DotProducts {
  template <int kLeft, int kRight>
  static void Multiply(const gemm::DotTile<float>& tile) {  // its columns are a multiple of 16
    const hn::CappedTag<float, 16> d;
    using V = hn::Vec<decltype(d)>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    V sums[kLeft][kRight];
    QX_UNROLL for (int i = 0; i < kLeft; ++i) { QX_UNROLL for (int j = 0; j < kRight; ++j) sums[i][j] = hn::Zero(d); }
    for (int64_t k = 0; k < tile.columns; k += lanes) {
      V left[kLeft];
      QX_UNROLL for (int i = 0; i < kLeft; ++i) left[i] = hn::LoadU(d, tile.left + i * tile.stride + k);
      QX_UNROLL for (int j = 0; j < kRight; ++j) {
        const V right = hn::LoadU(d, tile.right + j * tile.stride + k);
        QX_UNROLL for (int i = 0; i < kLeft; ++i) sums[i][j] = hn::MulAdd(left[i], right, sums[i][j]);
      }
    }
    QX_UNROLL for (int i = 0; i < kLeft; ++i) {
      QX_UNROLL for (int j = 0; j < kRight; ++j) {
        tile.sums[i * tile.sums_stride + j] = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
      }
    }
  }
};

static_assert(kGramRowBlock % gemm::kDotLeftRows == 0);

void GramOfRows(const float* x, int64_t rows, int64_t row_begin, int64_t row_end, int64_t columns, int64_t stride,
                float* gram) {
  gemm::UpperGramTiles<DotProducts>(x, rows, row_begin, row_end, columns, stride, gram);
}

// The columns of one stripe: whole panels, or the last one with fewer columns.
struct Stripe {
  int64_t column, panels, columns;
};

// destination = q source in one stripe, which is copied to panels first.
void ApplyToStripe(const float* packed_q, const RowsFromTo& m, int64_t rows, const Stripe& stripe, float* panels) {
  const int64_t panel_size = rows * kPanelColumns;
  const bool is_whole = stripe.columns == stripe.panels * kPanelColumns;
  for (int64_t p = 0; p < stripe.panels; ++p) {
    const float* from = m.source + stripe.column + p * kPanelColumns;
    // The columns of a panel are the rows of a tile that is summed over the rows of the matrix.
    gemm::PackTile(from, 1, m.source_stride, is_whole ? kPanelColumns : stripe.columns, rows, kPanelColumns,
                   panels + p * panel_size);
  }
  HWY_ALIGN float edge[gemm::kTileRows * kPanelColumns];
  const int64_t num_tiles = (rows + gemm::TileRowsFor(rows) - 1) / gemm::TileRowsFor(rows);
  for (int64_t t = 0; t < num_tiles; ++t) {
    const int64_t row = first_row(t, num_tiles, rows);
    const int64_t tile = first_row(t + 1, num_tiles, rows) - row;
    float* to = m.destination + row * m.destination_stride + stripe.column;
    const gemm::TileFunction multiply = gemm::TileFunctionFor(tile, stripe.panels);
    if (is_whole) {
      multiply({rows, packed_q + row * rows, panels, panel_size, to, m.destination_stride, false});
      continue;
    }
    multiply({rows, packed_q + row * rows, panels, panel_size, edge, kPanelColumns, false});
    for (int64_t r = 0; r < tile; ++r) {
      std::copy_n(edge + r * kPanelColumns, stripe.columns, to + r * m.destination_stride);
    }
  }
}

void Apply(const float* q, const RowsFromTo& matrix, int64_t rows, int64_t columns, float* workspace) {
  const int64_t num_tiles = (rows + gemm::TileRowsFor(rows) - 1) / gemm::TileRowsFor(rows);
  const int64_t widest = gemm::GroupPanels((rows + num_tiles - 1) / num_tiles);
  float* packed_q = workspace;
  float* panels = workspace + rows * rows;
  for (int64_t t = 0; t < num_tiles; ++t) {
    const int64_t row = first_row(t, num_tiles, rows);
    const int64_t tile = first_row(t + 1, num_tiles, rows) - row;
    gemm::PackTile(q + row * rows, rows, 1, tile, rows, tile, packed_q + row * rows);
  }
  for (int64_t column = 0; column < columns;) {
    int64_t num_panels = widest;
    while (num_panels > 1 && num_panels * kPanelColumns > columns - column) num_panels /= 2;
    const int64_t taken = std::min(num_panels * kPanelColumns, columns - column);
    ApplyToStripe(packed_q, matrix, rows, {column, num_panels, taken}, panels);
    column += taken;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels::newton_schulz_kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels::newton_schulz_kernel {

HWY_EXPORT(MaxMagnitudeBits);
HWY_EXPORT(ScaleInPlace);
HWY_EXPORT(Transpose);
HWY_EXPORT(GramOfRows);
HWY_EXPORT(Apply);

uint32_t max_magnitude_bits(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(MaxMagnitudeBits)(x, count); }

void scale_in_place(float* x, int64_t count, float factor) { HWY_DYNAMIC_DISPATCH(ScaleInPlace)(x, count, factor); }

void transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* destination,
               int64_t destination_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(source, source_stride, rows, columns, destination, destination_stride);
}

void gram_of_rows(const float* x, int64_t rows, int64_t row_begin, int64_t row_end, int64_t columns, int64_t stride,
                  float* gram) {
  HWY_DYNAMIC_DISPATCH(GramOfRows)(x, rows, row_begin, row_end, columns, stride, gram);
}

int64_t apply_workspace_size(int64_t rows) {
  constexpr int64_t kMaxPanels = 8;
  return rows * rows + rows * kMaxPanels * kPanelColumns;
}

void apply(const float* q, const RowsFromTo& matrix, int64_t rows, int64_t columns, float* workspace) {
  HWY_DYNAMIC_DISPATCH(Apply)(q, matrix, rows, columns, workspace);
}

}  // namespace qx::kernels::newton_schulz_kernel
#endif  // HWY_ONCE
