#include "quincunx/kernels/low_precision_gemm/converted_product.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/low_precision_gemm/converted_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/gemm/epilogue-inl.h"
#include "quincunx/kernels/gemm/pack-inl.h"
#include "quincunx/kernels/low_precision_gemm/converted_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

static_assert(kWidenedPanels <= 4);
int64_t ConvertedTileRows() { return kConvertedTileRows; }

void FinishTile(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns, float* c,
                int64_t c_row_stride) {
  ApplyEpilogue(epilogue, row, rows, column, columns, c, c_row_stride);
}

// The run of K that is being summed, in rows of the panels, and the panels that are multiplied by.
struct Slice {
  int64_t row_begin, row_end;
  bool first, last;
  int64_t panel, panels;

  int64_t num_rows() const { return row_end - row_begin; }
  Slice Of(const Slice& group) const { return {row_begin, row_end, first, last, group.panel, group.panels}; }
};

// Rows of a panel that MultiplyTile brings into the L2 cache.
struct Ahead {
  const uint8_t* rows = nullptr;
  int64_t step = 0;
};

// A[row ... row + rows, slice] as [k][rows], zero beyond the last k.
void PackRows(const LowPrecisionProduct& product, int64_t row, int64_t rows, int64_t begin, int64_t depth,
              float* packed, float* staging) {
  const int64_t present = std::min(depth, product.weight.inner - begin);
  const FloatMatrix& a = product.a;
  if (a.dtype == DType::kFloat32) {
    PackTile(reinterpret_cast<const float*>(a.at(row, begin)), a.row_stride, a.column_stride, rows, present, rows,
             packed);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      load_row_as_f32(a.dtype, a.at(row + r, begin), a.column_stride, present, staging + r * present);
    }
    PackTile(staging, present, 1, rows, present, rows, packed);
  }
  std::fill(packed + present * rows, packed + depth * rows, 0.0f);
}

template <class Format>
class ConvertedBlock {
 public:
  ConvertedBlock(const LowPrecisionProduct& product, const ProductBlock& block, float* memory)
      : product_(product), block_(block), packed_a_(memory) {
    const int64_t most_rows = ceil_div(block.rows, block.num_tiles);
    is_direct_ = most_rows <= DirectRows<Format>();
    group_panels_ = !is_direct_ ? kWidenedPanels : most_rows == 1 ? DirectPanels<1>() : DirectPanels<2>();
  }

  void Multiply() {
    const int64_t num_slices = NumSlices();
    if (is_direct_) {
      // The weights of a panel are read from end to end; the few rows of A are packed before, all of K.
      for (int64_t i = 0; i < num_slices; ++i) PackTiles(SliceOf(i));
      ForEachGroup([&](Slice group) {
        for (int64_t i = 0; i < num_slices; ++i) MultiplyGroup(SliceOf(i).Of(group));
      });
      return;
    }
    for (int64_t i = 0; i < num_slices; ++i) {
      const Slice slice = SliceOf(i);
      PackTiles(slice);
      ForEachGroup([&](Slice group) { MultiplyGroup(slice.Of(group)); });
    }
  }

 private:
  int64_t NumRows() const { return ceil_div(product_.weight.inner, Format::kDepth); }
  int64_t NumSlices() const { return std::max<int64_t>(1, ceil_div(NumRows() * Format::kDepth, kMaxInnerBlock)); }

  // K is cut between groups into slices of equal length, by its length alone.
  Slice SliceOf(int64_t i) const {
    constexpr int64_t kUnit = std::max(1, Format::kRowsPerGroup);
    const int64_t num_units = ceil_div(NumRows(), kUnit);
    const int64_t num_slices = NumSlices();
    return {i * num_units / num_slices * kUnit,
            std::min((i + 1) * num_units / num_slices * kUnit, NumRows()),
            i == 0,
            i + 1 == num_slices,
            0,
            0};
  }

  template <class Body>
  void ForEachGroup(const Body& body) const {
    Slice group{};
    for (group.panel = block_.panel_begin; group.panel < block_.panel_end; group.panel += group.panels) {
      group.panels = group_panels_ <= block_.panel_end - group.panel ? group_panels_ : 1;
      body(group);
    }
  }

  // The packed rows of A of a slice; where all slices are packed before, one after another.
  float* PackedA(const Slice& slice) const {
    return packed_a_ + (is_direct_ ? block_.num_rows() * slice.row_begin * Format::kDepth : 0);
  }
  float* Buffer(const Slice& slice) const {
    return PackedA(slice) + block_.num_rows() * slice.num_rows() * Format::kDepth;
  }

  void PackTiles(const Slice& slice) const {
    const int64_t depth = slice.num_rows() * Format::kDepth;
    for (int64_t tile = block_.tile_begin; tile < block_.tile_end; ++tile) {
      const int64_t row = block_.row_of(tile);
      PackRows(product_, row, block_.row_of(tile + 1) - row, slice.row_begin * Format::kDepth, depth,
               PackedA(slice) + (row - block_.first_row()) * depth, Buffer(slice));
    }
  }

  void MultiplyGroup(const Slice& slice) const {
    const int64_t stride = panel_bytes(product_.weight.format, product_.weight.inner);
    const WeightRows weights{product_.weight.data + slice.panel * stride, stride,
                             int8_scales_offset(product_.weight.inner), slice.row_begin, slice.row_end};
    if (!is_direct_) {
      const int64_t panel_size = slice.num_rows() * Format::kDepth * kWeightPanelColumns;
      for (int64_t p = 0; p < slice.panels; ++p) WidenPanel<Format>(weights, p, Buffer(slice) + p * panel_size);
    }
    for (int64_t tile = block_.tile_begin; tile < block_.tile_end; ++tile) MultiplyTileOfGroup(slice, tile, weights);
  }

  // The first tiles fetch a panel of the next group each.
  Ahead AheadOf(const Slice& slice, int64_t tile) const {
    const int64_t panel = slice.panel + slice.panels + tile;
    if (tile >= slice.panels || panel >= block_.panel_end) return {};
    const int64_t stride = panel_bytes(product_.weight.format, product_.weight.inner);
    return {product_.weight.data + panel * stride + RowOffset<Format>(slice.row_begin),
            ceil_div(Format::kRowBytes, Format::kDepth)};
  }

  void MultiplyTileOfGroup(const Slice& slice, int64_t tile, const WeightRows& weights) const {
    const int64_t depth = slice.num_rows() * Format::kDepth;
    const int64_t row = block_.row_of(tile);
    const int64_t rows = block_.row_of(tile + 1) - row;
    const int64_t column = slice.panel * kWeightPanelColumns;
    const int64_t columns = std::min(slice.panels * kWeightPanelColumns, product_.weight.columns - column);
    float* c = block_.c_at(row, column);
    const float* a = PackedA(slice) + (row - block_.first_row()) * depth;
    HWY_ALIGN float edge[std::max(kConvertedTileRows * kWidenedPanels, kMostPanels) * kWeightPanelColumns];
    const bool is_whole = columns == slice.panels * kWeightPanelColumns;
    float* sums = is_whole ? c : edge;
    const int64_t stride = is_whole ? block_.c_row_stride : slice.panels * kWeightPanelColumns;
    const bool accumulate = is_whole && !slice.first;
    if (is_direct_) {
      DirectFunctionFor<Format>(rows, slice.panels)({a, weights, sums, stride, accumulate});
    } else {
      const WeightRows widened{reinterpret_cast<const uint8_t*>(Buffer(slice)), depth * kPanelRowBytes, 0, 0, depth};
      const Ahead ahead = AheadOf(slice, tile - block_.tile_begin);
      WidenedFunctionFor(rows, slice.panels)({a, widened, sums, stride, accumulate, ahead.rows, ahead.step});
    }
    if (!is_whole) {
      for (int64_t r = 0; r < rows; ++r) {
        float* to = c + r * block_.c_row_stride;
        for (int64_t j = 0; j < columns; ++j) to[j] = (slice.first ? 0.0f : to[j]) + edge[r * stride + j];
      }
    }
    if (slice.last && !product_.epilogue.is_identity()) {
      ApplyEpilogue(product_.epilogue, row, rows, column, columns, c, block_.c_row_stride);
    }
  }

  const LowPrecisionProduct& product_;
  const ProductBlock& block_;
  float* packed_a_;  // and behind it, the widened panels
  int64_t group_panels_ = 1;
  bool is_direct_ = false;
};

void MultiplyConvertedBlock(const LowPrecisionProduct& product, const ProductBlock& block, float* memory) {
  switch (product.weight.format) {
    case WeightFormat::kBFloat16: return ConvertedBlock<WidenBFloat16>(product, block, memory).Multiply();
    case WeightFormat::kFloat16: return ConvertedBlock<WidenFloat16>(product, block, memory).Multiply();
    case WeightFormat::kInt8: return ConvertedBlock<WidenInt8>(product, block, memory).Multiply();
    case WeightFormat::kInt8Grouped: return ConvertedBlock<WidenInt8Grouped>(product, block, memory).Multiply();
    case WeightFormat::kInt4Grouped: return ConvertedBlock<WidenInt4Grouped>(product, block, memory).Multiply();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

namespace {
constexpr int64_t kMostWidenedPanels = 4;  // of any target
}  // namespace

HWY_EXPORT(ConvertedTileRows);
HWY_EXPORT(FinishTile);
HWY_EXPORT(MultiplyConvertedBlock);

void multiply_converted(const LowPrecisionProduct& product) {
  for_each_block(product, HWY_DYNAMIC_DISPATCH(ConvertedTileRows)(), [&](const ProductBlock& block) {
    // The packed rows, and the widened panels, which also hold the rows of a tile before they are packed. All of K is
    // packed of one or two rows.
    const int64_t slice = std::min(kMaxInnerBlock, product.weight.inner) + kGroupLength;
    const int64_t packed = product.rows <= 2 ? product.rows * (product.weight.inner + kGroupLength) : 0;
    const Workspace memory(packed + (block.num_rows() + kMostWidenedPanels * kWeightPanelColumns) * slice);
    HWY_DYNAMIC_DISPATCH(MultiplyConvertedBlock)(product, block, memory.data());
  });
}

void finish_tile(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns, float* c,
                 int64_t c_row_stride) {
  if (epilogue.is_identity()) return;
  HWY_DYNAMIC_DISPATCH(FinishTile)(epilogue, row, rows, column, columns, c, c_row_stride);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
