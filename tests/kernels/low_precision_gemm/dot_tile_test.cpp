// Every variant of the dot tiles that this CPU can run, on integers whose products and sums are exact.
#include "quincunx/kernels/low_precision_gemm/dot_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/random_values.h"
#include "quincunx/base/cpu_features.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile_portable.h"
#include "quincunx/kernels/low_precision_gemm/quantize_rows.h"

namespace qx::kernels {
namespace {

struct Variant {
  std::string name;
  WeightFormat format;
  DotUnits units;
  DotTileShape shape;
  DotTileFunction multiply;
};

std::vector<Variant> variants() {
  using enum WeightFormat;
  std::vector<Variant> found{
      {"portable int8", kInt8, DotUnits::kBytes, kShapePortable, &int8_tile_portable},
      {"portable int8 groups", kInt8Grouped, DotUnits::kBytes, kShapePortable, &int8_grouped_tile_portable},
      {"portable int4 groups", kInt4Grouped, DotUnits::kBytes, kShapePortable, &int4_grouped_tile_portable},
  };
#if defined(__x86_64__)
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx2 && cpu.fma && cpu.f16c) {
    found.push_back({"avx2 int8", kInt8, DotUnits::kWords, kInt8ShapeAvx2, &int8_tile_avx2});
    found.push_back({"avx2 int8 groups", kInt8Grouped, DotUnits::kWords, kGroupedShapeAvx2, &int8_grouped_tile_avx2});
    found.push_back({"avx2 int4 groups", kInt4Grouped, DotUnits::kBytes, kGroupedShapeAvx2, &int4_grouped_tile_avx2});
  }
  if (cpu.avx512bw && cpu.avx512vl && cpu.avx512vnni) {
    const DotTileShape grouped = kGroupedShapeAvx512Vnni;
    found.push_back({"vnni int8", kInt8, DotUnits::kBytes, kInt8ShapeAvx512Vnni, &int8_tile_avx512vnni});
    found.push_back({"vnni int8 groups", kInt8Grouped, DotUnits::kBytes, grouped, &int8_grouped_tile_avx512vnni});
    found.push_back({"vnni int4 groups", kInt4Grouped, DotUnits::kBytes, grouped, &int4_grouped_tile_avx512vnni});
  }
  if (cpu.avx512bf16) {
    found.push_back({"bf16", kBFloat16, DotUnits::kHalves, kBFloat16ShapeAvx512Bf16, &bfloat16_tile_avx512bf16});
  }
#endif
  return found;
}

// Integers up to `largest`, which each 32 of a row hold: their scale is 1.
std::vector<float> levels(int64_t rows, int64_t inner, int largest, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> level(-largest, largest);
  std::vector<float> values;
  for (int64_t i = 0; i < rows * inner; ++i) {
    values.push_back(static_cast<float>(i % inner % 32 == 0 ? (i % 64 == 0 ? largest : -largest) : level(generator)));
  }
  return values;
}

// a [rows, inner] times w [columns, inner], column j of the weight being row j of w.
void expect_exact(const Variant& variant, int64_t rows, int64_t panels, int64_t inner) {
  const int64_t columns = 16 * panels;
  const bool is_bfloat16 = variant.units == DotUnits::kHalves;
  auto a = levels(rows, inner, 127, 1);
  auto w = levels(columns, inner, variant.format == WeightFormat::kInt4Grouped ? 7 : 127, 2);
  std::vector<uint8_t> storage(static_cast<size_t>(packed_weight_size_bytes(variant.format, inner, columns).value()));
  LowPrecisionProduct product;
  product.weight =
      pack_weight(strided_view(w.data(), DType::kFloat32, {inner, columns}, {1, inner}), variant.format, storage)
          .value();
  auto halves = narrowed(a, DType::kBFloat16);
  product.a = is_bfloat16 ? FloatMatrix{DType::kBFloat16, halves.data(), inner, 1}
                          : FloatMatrix{DType::kFloat32, a.data(), inner, 1};
  product.rows = rows;
  product.input = InputQuantization::kDynamic;

  const DotRowsLayout layout = dot_rows_layout(product.weight, variant.units);
  std::vector<int32_t> units(static_cast<size_t>(layout.row_units * rows));
  std::vector<float> scales(static_cast<size_t>(layout.num_groups * rows));
  std::vector<int32_t> starts(scales.size());
  pack_dot_rows(product, layout, 0, rows, {units.data(), scales.data(), starts.data()});
  const int64_t row_values = is_bfloat16 ? 2 : 4;
  const uint8_t* b_scales = storage.data() + int8_scales_offset(inner);
  std::vector<float> c(static_cast<size_t>(rows * columns), 3.0f);
  const bool accumulates = !is_grouped(variant.format);
  variant.multiply(
      rows, panels,
      {units.data(), scales.data(), starts.data(),
       is_grouped(variant.format) ? layout.num_groups : (inner + row_values - 1) / row_values, storage.data(),
       panel_bytes(variant.format, inner), b_scales, b_scales + kPanelRowBytes, 0, c.data(), columns, accumulates});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double expected = accumulates ? 3.0 : 0.0;
      for (int64_t k = 0; k < inner; ++k) expected += double{a[i * inner + k]} * w[j * inner + k];
      ASSERT_EQ(c[i * columns + j], expected)
          << variant.name << ", " << rows << " rows, " << panels << " panels at " << i << ", " << j;
    }
  }
}

TEST(DotTile, EveryVariantSumsIntegersExactlyInAllShapes) {
  for (const Variant& variant : variants()) {
    // No wrap and no saturation: 96 products of the largest levels are below 2^24.
    for (const int64_t inner : {1, 3, 4, 33, 96}) {
      for (int64_t panels = 1; panels <= variant.shape.single_row_panels; panels *= 2) {
        expect_exact(variant, 1, panels, inner);
      }
      for (int64_t panels = 1; panels <= variant.shape.panels; panels *= 2) {
        for (int64_t rows = 2; rows <= variant.shape.max_rows; ++rows) expect_exact(variant, rows, panels, inner);
      }
    }
  }
}

TEST(DotTile, LargestLevelsDoNotSaturate) {
  for (const Variant& variant : variants()) {
    if (variant.units == DotUnits::kHalves) continue;
    const float level = variant.format == WeightFormat::kInt4Grouped ? 7.0f : 127.0f;
    std::vector<float> w(16 * 64, -level), a(64, 127.0f);
    std::vector<uint8_t> storage(static_cast<size_t>(packed_weight_size_bytes(variant.format, 64, 16).value()));
    LowPrecisionProduct product;
    product.weight = pack_weight(f32_view(w, {64, 16}), variant.format, storage).value();
    product.a = {DType::kFloat32, a.data(), 64, 1};
    product.rows = 1;
    product.input = InputQuantization::kDynamic;
    const DotRowsLayout layout = dot_rows_layout(product.weight, variant.units);
    std::vector<int32_t> units(static_cast<size_t>(layout.row_units));
    std::vector<float> scales(static_cast<size_t>(layout.num_groups));
    std::vector<int32_t> starts(scales.size());
    pack_dot_rows(product, layout, 0, 1, {units.data(), scales.data(), starts.data()});
    std::vector<float> c(16);
    const uint8_t* b_scales = storage.data() + int8_scales_offset(64);
    variant.multiply(1, 1,
                     {units.data(), scales.data(), starts.data(), is_grouped(variant.format) ? 2 : 16, storage.data(),
                      panel_bytes(variant.format, 64), b_scales, b_scales + kPanelRowBytes, 0, c.data(), 16, false});
    EXPECT_EQ(c, std::vector<float>(16, -64.0f * 127.0f * level)) << variant.name;
  }
}

}  // namespace
}  // namespace qx::kernels
