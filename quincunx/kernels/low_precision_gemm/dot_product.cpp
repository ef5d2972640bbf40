#include "quincunx/kernels/low_precision_gemm/dot_product.h"

#include <hwy/targets.h>

#include <algorithm>

#include "quincunx/base/cpu_features.h"
#include "quincunx/kernels/low_precision_gemm/converted_product.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile_portable.h"
#include "quincunx/kernels/low_precision_gemm/quantize_rows.h"
#include "quincunx/kernels/low_precision_gemm/tile_permission.h"

namespace qx::kernels {
namespace {

#if HWY_ARCH_X86
// The targets that Highway's dispatch may use: tests restrict them.
bool may_use_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
bool has_amx() { return may_use_avx512() && cpu_features().amx_tile && may_use_tile_registers(); }
bool has_amx_int8() { return has_amx() && cpu_features().amx_int8; }
bool has_amx_bf16() { return has_amx() && cpu_features().amx_bf16; }
bool has_vnni() { return may_use_avx512() && cpu_features().avx512vnni; }
bool has_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0 || may_use_avx512(); }

// Up to this many rows leave the tile registers idle; the sums of integers are the same either way. Those of bf16 are
// not: they take the tile registers for any number of rows.
constexpr int64_t kFewRows = 4;
#endif

DotKernel kernel_for(WeightFormat format, [[maybe_unused]] int64_t rows) {
#if HWY_ARCH_X86
  if (format == WeightFormat::kBFloat16) {
    if (has_amx_bf16()) return {DotUnits::kBlockedHalves, kShapeAmx, &bfloat16_tile_amx};
    return {DotUnits::kHalves, kBFloat16ShapeAvx512Bf16, &bfloat16_tile_avx512bf16};
  }
  if (format == WeightFormat::kInt8 && has_amx_int8() && (rows > kFewRows || !has_vnni())) {
    return {DotUnits::kBlockedBytes, kShapeAmx, &int8_tile_amx};
  }
  if (has_vnni()) {
    if (format == WeightFormat::kInt8) return {DotUnits::kBytes, kInt8ShapeAvx512Vnni, &int8_tile_avx512vnni};
    return {DotUnits::kBytes, kGroupedShapeAvx512Vnni,
            format == WeightFormat::kInt8Grouped ? &int8_grouped_tile_avx512vnni : &int4_grouped_tile_avx512vnni};
  }
  if (has_avx2()) {
    if (format == WeightFormat::kInt8) return {DotUnits::kWords, kInt8ShapeAvx2, &int8_tile_avx2};
    if (format == WeightFormat::kInt8Grouped) return {DotUnits::kWords, kGroupedShapeAvx2, &int8_grouped_tile_avx2};
    return {DotUnits::kBytes, kGroupedShapeAvx2, &int4_grouped_tile_avx2};
  }
#endif
  if (format == WeightFormat::kInt8) return {DotUnits::kBytes, kShapePortable, &int8_tile_portable};
  return {DotUnits::kBytes, kShapePortable,
          format == WeightFormat::kInt8Grouped ? &int8_grouped_tile_portable : &int4_grouped_tile_portable};
}

constexpr int64_t kLargestTile = kShapeAmx.max_rows * kShapeAmx.panels * kWeightPanelColumns;
static_assert(kLargestTile >= 8 * kWeightPanelColumns && kLargestTile >= 14 * 2 * kWeightPanelColumns);

// Pairs of bf16 that are summed before they are added to the output: 14 rows of them fit the L1 cache, 192 the L2.
constexpr int64_t kHalvesSegment = 768;
static_assert(kHalvesSegment % kUnitsPerBlock == 0 && kMaxSegment / 4 % kUnitsPerBlock == 0,
              "segments end with blocks");

// A run of the rows of a panel that is summed at once: all of it if the weights are grouped.
struct Segment {
  int64_t index, begin, end;
  bool first, last;
};

// The packed rows of all tiles: they are packed once, before the blocks that share them.
class PackedRows {
 public:
  PackedRows(const LowPrecisionProduct& product, const DotRowsLayout& layout)
      : product_(product),
        layout_(layout),
        num_starts_(std::max(layout.num_groups, num_segments(product.weight.inner))),
        memory_(product.rows * (layout.stored_units + layout.num_groups + num_starts_)) {}

  // Those of one tile stand together.
  PackedDotRows of_tile(int64_t row, int64_t rows) const {
    float* start = memory_.data() + row * (layout_.stored_units + layout_.num_groups + num_starts_);
    auto* units = reinterpret_cast<int32_t*>(start);
    return {units, start + rows * layout_.stored_units, units + rows * (layout_.stored_units + layout_.num_groups)};
  }

  void pack(int64_t num_tiles) const {
    const auto pack_tiles = [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = first_row_of(tile, num_tiles, product_.rows);
        const int64_t rows = first_row_of(tile + 1, num_tiles, product_.rows) - row;
        pack_dot_rows(product_, layout_, row, rows, of_tile(row, rows));
      }
    };
    if (threads_of(product_) == 1) return pack_tiles(0, num_tiles);
    parallel_for(0, num_tiles, 1, pack_tiles);
  }

 private:
  const LowPrecisionProduct& product_;
  const DotRowsLayout& layout_;
  int64_t num_starts_;
  Workspace memory_;
};

struct DotBlock {
  const LowPrecisionProduct& product;
  const DotKernel& kernel;
  const PackedRows& packed_rows;
  const ProductBlock& block;
};

void multiply_tile(const DotBlock& work, int64_t tile, int64_t panel, int64_t panels, const Segment& segment) {
  const ProductBlock& block = work.block;
  const PackedWeight& weight = work.product.weight;
  const int64_t row = block.row_of(tile);
  const int64_t rows = block.row_of(tile + 1) - row;
  const int64_t column = panel * kWeightPanelColumns;
  const int64_t columns = std::min(panels * kWeightPanelColumns, weight.columns - column);
  const int64_t stride = panel_bytes(weight.format, weight.inner);
  const uint8_t* b = weight.data + panel * stride;
  const uint8_t* scales = b + int8_scales_offset(weight.inner);
  const PackedDotRows a = work.packed_rows.of_tile(row, rows);
  const int64_t units_per_row = work.kernel.units == DotUnits::kWords ? 2 : 1;
  float* c = block.c_at(row, column);

  alignas(64) float edge[kLargestTile];
  const bool is_whole = columns == panels * kWeightPanelColumns;
  const int64_t c_stride = is_whole ? block.c_row_stride : panels * kWeightPanelColumns;
  work.kernel.multiply(rows, panels,
                       {a.units + segment.begin * units_per_row * rows, a.scales, a.starts + segment.index * rows,
                        segment.end - segment.begin, b + segment.begin * kPanelRowBytes, stride, scales,
                        scales + (1 + segment.index) * kPanelRowBytes, work.product.input_zero_point,
                        is_whole ? c : edge, c_stride, is_whole && !segment.first});
  if (!is_whole) {
    for (int64_t r = 0; r < rows; ++r) {
      float* to = c + r * block.c_row_stride;
      for (int64_t j = 0; j < columns; ++j) to[j] = (segment.first ? 0.0f : to[j]) + edge[r * c_stride + j];
    }
  }
  if (segment.last) finish_tile(work.product.epilogue, row, rows, column, columns, c, block.c_row_stride);
}

// Runs of the rows of a panel; grouped weights have one, of groups.
int64_t count_segments(const PackedWeight& weight) {
  if (is_grouped(weight.format)) return 1;
  return weight.format == WeightFormat::kInt8
             ? num_segments(weight.inner)
             : ceil_div(ceil_div(weight.inner, k_per_panel_row(weight.format)), kHalvesSegment);
}

Segment segment_of(const PackedWeight& weight, int64_t i, int64_t count) {
  if (is_grouped(weight.format)) return {0, 0, ceil_div(weight.inner, kGroupLength), true, true};
  const int64_t depth = ceil_div(weight.inner, k_per_panel_row(weight.format));
  const bool is_int8 = weight.format == WeightFormat::kInt8;
  const int64_t longest = is_int8 ? kMaxSegment / 4 : kHalvesSegment;
  return {is_int8 ? i : 0, i * longest, std::min(depth, (i + 1) * longest), i == 0, i + 1 == count};
}

// body(panel, panels) for groups of panels that a tile is multiplied by at once.
template <typename Body>
void for_each_group(const DotBlock& work, const Body& body) {
  const DotTileShape& shape = work.kernel.shape;
  const int64_t widest = work.block.rows == 1 ? shape.single_row_panels : shape.panels;
  for (int64_t panel = work.block.panel_begin; panel < work.block.panel_end;) {
    int64_t panels = widest;
    while (panels > work.block.panel_end - panel) panels /= 2;
    body(panel, panels);
    panel += panels;
  }
}

void multiply_block(const DotBlock& work) {
  const ProductBlock& block = work.block;
  const int64_t segments = count_segments(work.product.weight);
  const auto multiply_group = [&](int64_t panel, int64_t panels, int64_t i) {
    const Segment segment = segment_of(work.product.weight, i, segments);
    for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
      multiply_tile(work, tile, panel, panels, segment);
    }
  };
  if (block.rows == 1) {  // its weights are read from end to end
    return for_each_group(work, [&](int64_t panel, int64_t panels) {
      for (int64_t i = 0; i < segments; ++i) multiply_group(panel, panels, i);
    });
  }
  for (int64_t i = 0; i < segments; ++i) {
    for_each_group(work, [&](int64_t panel, int64_t panels) { multiply_group(panel, panels, i); });
  }
}

}  // namespace

bool has_bfloat16_dot() {
#if HWY_ARCH_X86
  return has_amx_bf16() || (may_use_avx512() && cpu_features().avx512bf16);
#else
  return false;
#endif
}

const char* integer_dot_name() {
#if HWY_ARCH_X86
  if (has_amx_int8()) return "amx";
  if (has_vnni()) return "avx512vnni";
  if (has_avx2()) return "avx2";
#endif
  return "portable";
}

void multiply_dot(const LowPrecisionProduct& product) {
  multiply_dot(product, kernel_for(product.weight.format, product.rows));
}

void multiply_dot(const LowPrecisionProduct& product, const DotKernel& kernel) {
  const DotRowsLayout layout = dot_rows_layout(product.weight, kernel.units);
  const PackedRows packed_rows(product, layout);
  packed_rows.pack(ceil_div(product.rows, kernel.shape.max_rows));
  for_each_block(product, kernel.shape.max_rows,
                 [&](const ProductBlock& block) { multiply_block({product, kernel, packed_rows, block}); });
}

}  // namespace qx::kernels
