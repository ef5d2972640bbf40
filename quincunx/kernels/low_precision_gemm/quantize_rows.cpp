#include "quincunx/kernels/low_precision_gemm/quantize_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/low_precision_gemm/quantize_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;

// The largest magnitude; NaN if a value is NaN or infinite.
float LargestFinite(const float* values, int64_t count) {
  const F32 d;
  auto largest = hn::Zero(d);
  auto invalid = hn::Zero(d);  // x - x is NaN for NaN and infinities
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, values + i);
    largest = hn::Max(largest, hn::Abs(x));
    invalid = hn::Add(invalid, hn::Sub(x, x));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest)) + hn::GetLane(hn::SumOfLanes(d, invalid));
}

bool HoldsNaN(const float* values, int64_t count) {
  const F32 d;
  auto numbers = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, values + i);
    numbers = hn::IfThenElseZero(hn::Eq(x, x), numbers);
  }
  return hn::GetLane(hn::MinOfLanes(d, numbers)) == 0.0f;
}

// q = clamp(round(x * lift * inverse) + zero_point, -128, 127)
void Quantize(const float* values, int64_t count, float lift, float inverse, int32_t zero_point, int8_t* q) {
  const F32 d;
  const I32 di;
  const hn::Rebind<int8_t, F32> d8;
  constexpr float kBound = 1024.0f;  // far beyond what the clamp keeps, and small enough for an integer
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto scaled = hn::Mul(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, lift)), hn::Set(d, inverse));
    const auto bounded = hn::Max(hn::Min(scaled, hn::Set(d, kBound)), hn::Set(d, -kBound));
    const auto shifted = hn::Add(hn::NearestInt(bounded), hn::Set(di, zero_point));
    const auto level = hn::Max(hn::Min(shifted, hn::Set(di, 127)), hn::Set(di, -128));
    hn::StoreU(hn::DemoteTo(d8, level), d8, q + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(LargestFinite);
HWY_EXPORT(HoldsNaN);
HWY_EXPORT(Quantize);

namespace {

// quantize_dynamic and quantize_static take whole vectors of any instruction set.
constexpr int64_t kVectorValues = 16;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float quantize_to_nan(int64_t count, int8_t* q) {
  std::memset(q, 0, static_cast<size_t>(count));
  return kNaN;
}

int64_t unit_index(DotUnits kind, int64_t unit, int64_t r, int64_t rows) {
  if (!is_blocked(kind)) return unit * rows + r;
  return (unit / kUnitsPerBlock * rows + r) * kUnitsPerBlock + unit % kUnitsPerBlock;
}

void store_unit(int32_t* units, int64_t index, const void* bytes) { std::memcpy(units + index, bytes, 4); }

// Quantised values of one row, `count` of them, to the units of row `r`.
void spread_units(const int8_t* q, int64_t count, DotUnits kind, int64_t r, int64_t rows, int32_t* units) {
  if (is_bytes(kind)) {
    if (rows == 1 && kind == DotUnits::kBytes) {
      std::memcpy(units, q, static_cast<size_t>(count));
      return;
    }
    for (int64_t i = 0; i < count; i += 4) store_unit(units, unit_index(kind, i / 4, r, rows), q + i);
    return;
  }
  for (int64_t i = 0; i < count; i += 4) {
    const int16_t words[4] = {q[i], q[i + 2], q[i + 1], q[i + 3]};
    store_unit(units, i / 2 * rows + r, words);
    store_unit(units, (i / 2 + 1) * rows + r, words + 2);
  }
}

float quantize(const LowPrecisionProduct& product, const float* values, int64_t count, int8_t* q) {
  if (product.input == InputQuantization::kDynamic) return quantize_dynamic(values, count, q);
  return quantize_static(values, count, product.input_scale, product.input_zero_point, q);
}

// One group of one row, or all of a row whose weights are not grouped.
void pack_group(const LowPrecisionProduct& product, const DotRowsLayout& layout, const float* values, int64_t r,
                int64_t rows, int64_t group, int8_t* q, const PackedDotRows& packed) {
  const int64_t units = layout.row_units / layout.num_groups;
  const int64_t count = units * (is_bytes(layout.units) ? 4 : 2);
  packed.scales[group * rows + r] = quantize(product, values, layout.group_length, q);
  spread_units(q, count, layout.units, r, rows, packed.units + group * units * rows);
  for (int64_t begin = 0; begin < count; begin += kMaxSegment) {
    const int32_t sum = std::accumulate(q + begin, q + std::min(count, begin + kMaxSegment), 0);
    packed.starts[(group + begin / kMaxSegment) * rows + r] = -layout.weight_offset * sum;
  }
}

void pack_quantized_rows(const LowPrecisionProduct& product, const DotRowsLayout& layout, int64_t row, int64_t rows,
                         const PackedDotRows& packed) {
  const int64_t inner = product.weight.inner;
  const int64_t length = layout.num_groups * layout.group_length;
  const Workspace memory(length + ceil_div(layout.group_length, 4));
  float* values = memory.data();
  auto* q = reinterpret_cast<int8_t*>(values + length);
  std::fill(values + inner, values + length, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    load_row_as_f32(product.a.dtype, product.a.at(row + r, 0), product.a.column_stride, inner, values);
    for (int64_t group = 0; group < layout.num_groups; ++group) {
      pack_group(product, layout, values + group * layout.group_length, r, rows, group, q, packed);
    }
  }
}

void pack_halves(const LowPrecisionProduct& product, const DotRowsLayout& layout, int64_t row, int64_t rows,
                 int32_t* units) {
  const int64_t inner = product.weight.inner;
  const int64_t stride = product.a.column_stride;
  for (int64_t r = 0; r < rows; ++r) {
    const auto* source = reinterpret_cast<const uint16_t*>(product.a.at(row + r, 0));
    for (int64_t i = 0; i < layout.row_units; ++i) {
      const uint16_t pair[2] = {source[2 * i * stride], 2 * i + 1 < inner ? source[(2 * i + 1) * stride] : uint16_t{0}};
      store_unit(units, unit_index(layout.units, i, r, rows), pair);
    }
  }
}

}  // namespace

float quantize_dynamic(const float* values, int64_t count, int8_t* q) {
  const float largest = HWY_DYNAMIC_DISPATCH(LargestFinite)(values, count);
  if (std::isnan(largest)) return quantize_to_nan(count, q);
  if (largest == 0.0f) {
    std::memset(q, 0, static_cast<size_t>(count));
    return 0.0f;
  }
  // 127 / x overflows for the smallest numbers.
  const float lift = largest < 0x1p-100f ? 0x1p64f : 1.0f;
  const float inverse = 127.0f / (largest * lift);
  HWY_DYNAMIC_DISPATCH(Quantize)(values, count, lift, inverse, 0, q);
  return largest * lift / 127.0f / lift;
}

float quantize_static(const float* values, int64_t count, float scale, int32_t zero_point, int8_t* q) {
  if (HWY_DYNAMIC_DISPATCH(HoldsNaN)(values, count)) return quantize_to_nan(count, q);
  HWY_DYNAMIC_DISPATCH(Quantize)(values, count, 1.0f, 1.0f / scale, zero_point, q);
  return scale;
}

DotRowsLayout dot_rows_layout(const PackedWeight& weight, DotUnits units) {
  const int64_t values_per_unit = is_bytes(units) ? 4 : 2;
  if (is_grouped(weight.format)) {
    const int64_t groups = ceil_div(weight.inner, kGroupLength);
    const int64_t row_units = groups * kGroupLength / values_per_unit;
    return {units, row_units, row_units, kGroupLength, groups, weight.format == WeightFormat::kInt4Grouped ? 8 : 128};
  }
  const int64_t padded = ceil_div(weight.inner, k_per_panel_row(weight.format)) * k_per_panel_row(weight.format);
  const int64_t row_units = padded / values_per_unit;
  const int64_t stored_units = is_blocked(units) ? ceil_div(row_units, kUnitsPerBlock) * kUnitsPerBlock : row_units;
  return {units, row_units, stored_units, ceil_div(padded, kVectorValues) * kVectorValues, 1, 128};
}

void pack_dot_rows(const LowPrecisionProduct& product, const DotRowsLayout& layout, int64_t row, int64_t rows,
                   const PackedDotRows& packed) {
  if (is_blocked(layout.units)) {
    for (int64_t i = layout.row_units; i < layout.stored_units; ++i) {
      for (int64_t r = 0; r < rows; ++r) packed.units[unit_index(layout.units, i, r, rows)] = 0;
    }
  }
  if (is_halves(layout.units)) return pack_halves(product, layout, row, rows, packed.units);
  pack_quantized_rows(product, layout, row, rows, packed);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
