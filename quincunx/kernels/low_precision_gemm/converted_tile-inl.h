// The innermost product: a tile of rows of A times a group of panels, whose weights are widened in registers or before.
#if defined(QUINCUNX_KERNELS_LOW_PRECISION_GEMM_CONVERTED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_LOW_PRECISION_GEMM_CONVERTED_TILE_INL_H_
#undef QUINCUNX_KERNELS_LOW_PRECISION_GEMM_CONVERTED_TILE_INL_H_
#else
#define QUINCUNX_KERNELS_LOW_PRECISION_GEMM_CONVERTED_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/low_precision_gemm/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows [row_begin, row_end) of a group of panels; rows are counted from the start of K, panels from the first here.
struct WeightRows {
  const uint8_t* panels;
  int64_t panel_stride;   // bytes
  int64_t scales_offset;  // of kInt8
  int64_t row_begin, row_end;
};

// Groups begin where row_begin does: K is cut between groups.
template <class Format>
HWY_INLINE int64_t RowOffset(int64_t row) {
  if constexpr (Format::kRowsPerGroup == 0) return row * Format::kRowBytes;
  return row * Format::kRowBytes + row / std::max(Format::kRowsPerGroup, 1) * kGroupScaleBytes;
}

// widened[k][16 columns] of one panel.
template <class Format>
void WidenPanel(const WeightRows& rows, int64_t panel, float* HWY_RESTRICT widened) {
  const Columns d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const uint8_t* start = rows.panels + panel * rows.panel_stride;
  const uint8_t* row = start + RowOffset<Format>(rows.row_begin);
  const uint8_t* scales = start + rows.scales_offset;
  int64_t left_in_group = 0;
  for (int64_t i = rows.row_begin; i < rows.row_end; ++i) {
    if (Format::kRowsPerGroup != 0 && left_in_group == 0) {
      scales = row + Format::kRowsPerGroup * Format::kRowBytes;
      left_in_group = Format::kRowsPerGroup;
    }
    QX_UNROLL for (int first = 0; first < kWeightPanelColumns; first += kLanes) {
      ColumnVector weights[Format::kDepth];
      Format::Widen(d, row, first, Format::Scale(d, scales, first), weights);
      QX_UNROLL for (int k = 0; k < Format::kDepth; ++k) {
        hn::StoreU(weights[k], d, widened + k * kWeightPanelColumns + first);
      }
    }
    widened += Format::kDepth * kWeightPanelColumns;
    row += Format::kRowBytes;
    if (Format::kRowsPerGroup != 0 && --left_in_group == 0) row += kGroupScaleBytes;
  }
}

struct ConvertedOperands {
  const float* a;  // [k][rows], k up to whole rows of weights
  WeightRows b;
  float* c;
  int64_t c_row_stride;
  bool accumulate;
  // What is read soon after this tile, to be brought into the L2 cache meanwhile, next_step bytes with each row.
  const uint8_t* next = nullptr;
  int64_t next_step = 0;
};
using ConvertedFunction = void (*)(const ConvertedOperands&);

// Adds the products of one row of the panels. The order of the loops keeps few values alive beside the sums: the
// weights of one k where rows are many, the elements of A where a row holds several k.
template <class Format, int kRows, int kVectors>
HWY_INLINE void MultiplyRow(const uint8_t* row, const uint8_t* scales, int64_t panel_stride, const float* a,
                            ColumnVector (&sums)[kRows][kVectors]) {
  const Columns d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerPanel = static_cast<int>(kWeightPanelColumns) / kLanes;
  const auto widen = [&](int v, ColumnVector(&weights)[Format::kDepth]) HWY_ATTR {
    const int64_t panel = v / kVectorsPerPanel * panel_stride;
    const int first = v % kVectorsPerPanel * kLanes;
    Format::Widen(d, row + panel, first, Format::Scale(d, scales + panel, first), weights);
  };
  if constexpr (Format::kDepth == 1) {
    ColumnVector weights[kVectors][1];
    QX_UNROLL for (int v = 0; v < kVectors; ++v) widen(v, weights[v]);
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      const ColumnVector element = hn::Set(d, a[r]);
      QX_UNROLL for (int v = 0; v < kVectors; ++v) { sums[r][v] = hn::MulAdd(element, weights[v][0], sums[r][v]); }
    }
  } else {
    QX_UNROLL for (int v = 0; v < kVectors; ++v) {
      ColumnVector weights[Format::kDepth];
      widen(v, weights);
      QX_UNROLL for (int k = 0; k < Format::kDepth; ++k) {
        QX_UNROLL for (int r = 0; r < kRows; ++r) {
          sums[r][v] = hn::MulAdd(hn::Set(d, a[k * kRows + r]), weights[k], sums[r][v]);
        }
      }
    }
  }
}

template <class Format, int kRows, int kPanels>
void MultiplyTile(const ConvertedOperands& operands) {
  const Columns d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerPanel = static_cast<int>(kWeightPanelColumns) / kLanes;
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  // The widened panels lie in the L2 cache. Panels that come from memory are left to the hardware.
  constexpr bool kReadsBuffer = std::is_same_v<Format, WidenedFloat32>;
  [[maybe_unused]] constexpr int64_t kAheadBytes = 8 * kPanelRowBytes;
  ColumnVector sums[kRows][kVectors];
  QX_UNROLL for (int r = 0; r < kRows; ++r) { QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d); }
  const float* HWY_RESTRICT a = operands.a;
  const WeightRows& b = operands.b;
  const uint8_t* HWY_RESTRICT row = b.panels + RowOffset<Format>(b.row_begin);
  const uint8_t* scales = b.panels + b.scales_offset;
  int64_t left_in_group = 0;
  [[maybe_unused]] const uint8_t* next = operands.next != nullptr ? operands.next : row;
  if constexpr (kReadsBuffer) {
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      QX_UNROLL for (int p = 0; p < kPanels; ++p) {
        __builtin_prefetch(operands.c + r * operands.c_row_stride + p * kWeightPanelColumns);
      }
    }
  }
  for (int64_t i = b.row_begin; i < b.row_end; ++i) {
    if (Format::kRowsPerGroup != 0 && left_in_group == 0) {
      scales = row + Format::kRowsPerGroup * Format::kRowBytes;
      left_in_group = Format::kRowsPerGroup;
    }
    if constexpr (kReadsBuffer) {
      QX_UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(row + p * b.panel_stride + kAheadBytes);
      __builtin_prefetch(next, 0, 2);
      next += operands.next_step;
    }
    MultiplyRow<Format, kRows, kVectors>(row, scales, b.panel_stride, a, sums);
    a += Format::kDepth * kRows;
    row += Format::kRowBytes;
    if (Format::kRowsPerGroup != 0 && --left_in_group == 0) row += kGroupScaleBytes;
  }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    QX_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* c = operands.c + r * operands.c_row_stride + v * kLanes;
      hn::StoreU(operands.accumulate ? hn::Add(hn::LoadU(d, c), sums[r][v]) : sums[r][v], d, c);
    }
  }
}

// The sums take most of the registers, the rest holds a row of weights and one element of A.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kConvertedTileRows = 6;
inline constexpr int kWidenedPanels = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kConvertedTileRows = 6;
inline constexpr int kWidenedPanels = 1;
#else
inline constexpr int kConvertedTileRows = 2;
inline constexpr int kWidenedPanels = 1;
#endif
inline constexpr int kMostPanels = 8;

// Rows that are multiplied without the buffer: writing it would take longer than the products. Integers take more
// instructions to widen, which only one row is to do again for each panel.
template <class Format>
constexpr int DirectRows() {
  return Format::kDepth <= 2 ? 2 : 1;
}

// Panels that one or two rows are multiplied by at once: enough sums to hide the latency of a fused multiply-add.
template <int kRows>
constexpr int DirectPanels() {
#if HWY_TARGET <= HWY_AVX3
  return kRows == 1 ? 8 : 4;
#elif HWY_TARGET == HWY_AVX2
  return kRows == 1 ? 4 : 2;
#else
  return kRows == 1 ? 2 : 1;
#endif
}

// For rows in 1 ... DirectRows and the panels of DirectPanels or a single one.
template <class Format>
ConvertedFunction DirectFunctionFor(int64_t rows, int64_t panels) {
  if constexpr (DirectRows<Format>() > 1) {
    if (rows == 2) return panels == 1 ? &MultiplyTile<Format, 2, 1> : &MultiplyTile<Format, 2, DirectPanels<2>()>;
  }
  return panels == 1 ? &MultiplyTile<Format, 1, 1> : &MultiplyTile<Format, 1, DirectPanels<1>()>;
}

// For rows in 1 ... kConvertedTileRows and kWidenedPanels panels or a single one.
template <int kRows = kConvertedTileRows>
ConvertedFunction WidenedFunctionFor(int64_t rows, int64_t panels) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return WidenedFunctionFor<kRows - 1>(rows, panels);
  }
  return panels == 1 ? &MultiplyTile<WidenedFloat32, kRows, 1> : &MultiplyTile<WidenedFloat32, kRows, kWidenedPanels>;
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
