#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/low_precision_gemm/operand_checks.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInt8Limit = 127.0f;
constexpr float kInt4Limit = 7.0f;
constexpr float kLargestFloat16 = 65504.0f;
constexpr uint8_t kInt8Zero = 128;
constexpr int kInt4Zero = 8;

float limit_of(WeightFormat format) { return format == WeightFormat::kInt4Grouped ? kInt4Limit : kInt8Limit; }

// NaN or infinity if one of them is.
float largest_magnitude(const float* values, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(values[i]);
    if (!(magnitude <= largest)) largest = magnitude;
    if (std::isnan(largest)) break;
  }
  return largest;
}

int quantized(float value, float scale, float limit) {
  if (scale == 0.0f) return 0;
  return static_cast<int>(std::clamp(std::nearbyint(value / scale), -limit, limit));
}

template <typename T>
void store_at(uint8_t* destination, T value) {
  std::memcpy(destination, &value, sizeof(T));
}
template <typename T>
T load_at(const uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

// The scale rounded up: with a smaller one the largest weight would be cut.
float int8_scale(float largest) {
  const float scale = largest / kInt8Limit;
  return scale * kInt8Limit < largest ? std::nextafter(scale, std::numeric_limits<float>::infinity()) : scale;
}
uint16_t group_scale_bits(float largest, float limit) {
  const float scale = largest / limit;
  const uint16_t bits = float16_bits_from_float(scale);
  return float_from_float16_bits(bits) * limit < largest ? static_cast<uint16_t>(bits + 1) : bits;
}

void pack_float_column(const float* values, int64_t inner, int64_t column, WeightFormat format, uint8_t* panel) {
  for (int64_t k = 0; k < inner; ++k) {
    if (format == WeightFormat::kBFloat16) {
      store_at(panel + k / 2 * kPanelRowBytes + column * 4 + k % 2 * 2, bfloat16_bits_from_float(values[k]));
    } else {
      store_at(panel + k * kPanelRowBytes / 2 + column * 2, float16_bits_from_float(values[k]));
    }
  }
}

void pack_int8_column(const float* values, int64_t inner, int64_t column, uint8_t* panel) {
  const float scale = int8_scale(largest_magnitude(values, inner));
  uint8_t* tail = panel + int8_scales_offset(inner) + column * 4;
  store_at(tail, scale);
  for (int64_t begin = 0; begin < inner; begin += kMaxSegment) {
    int32_t sum = 0;
    for (int64_t k = begin; k < std::min(inner, begin + kMaxSegment); ++k) {
      const int q = quantized(values[k], scale, kInt8Limit);
      panel[k / 4 * kPanelRowBytes + column * 4 + k % 4] = static_cast<uint8_t>(q + kInt8Zero);
      sum += q;
    }
    tail += kPanelRowBytes;
    store_at(tail, sum);
  }
}

// One group: `count` <= 32 values of a column.
void pack_group_column(const float* values, int64_t count, int64_t column, WeightFormat format, uint8_t* group) {
  const float limit = limit_of(format);
  const uint16_t bits = group_scale_bits(largest_magnitude(values, count), limit);
  store_at(group + group_bytes(format) - kGroupScaleBytes + column * 2, bits);
  const float scale = float_from_float16_bits(bits);
  for (int64_t k = 0; k < count; ++k) {
    const int q = quantized(values[k], scale, limit);
    if (format == WeightFormat::kInt8Grouped) {
      group[k / 4 * kPanelRowBytes + column * 4 + k % 4] = static_cast<uint8_t>(q + kInt8Zero);
    } else {
      uint8_t& pair = group[k / 8 * kPanelRowBytes + column * 4 + k % 4];
      const int shift = k % 8 < 4 ? 0 : 4;
      pair = static_cast<uint8_t>((pair & (0xf0 >> shift)) | ((q + kInt4Zero) << shift));
    }
  }
}

// The panel of a matrix of zeros.
void clear_panel(WeightFormat format, int64_t inner, uint8_t* panel) {
  if (panel_bytes(format, inner) == 0) return;
  std::memset(panel, 0, static_cast<size_t>(panel_bytes(format, inner)));
  if (format == WeightFormat::kInt8) std::memset(panel, kInt8Zero, static_cast<size_t>(int8_scales_offset(inner)));
  if (!is_grouped(format)) return;
  const int zero = format == WeightFormat::kInt8Grouped ? kInt8Zero : kInt4Zero * 0x11;
  const int64_t bytes = group_bytes(format);
  for (int64_t group = 0; group < ceil_div(inner, kGroupLength); ++group) {
    std::memset(panel + group * bytes, zero, static_cast<size_t>(bytes - kGroupScaleBytes));
  }
}

void pack_column(const float* values, int64_t inner, int64_t column, WeightFormat format, uint8_t* panel) {
  if (format == WeightFormat::kInt8) return pack_int8_column(values, inner, column, panel);
  if (!is_grouped(format)) return pack_float_column(values, inner, column, format, panel);
  for (int64_t k = 0; k < inner; k += kGroupLength) {
    pack_group_column(values + k, std::min(kGroupLength, inner - k), column, format,
                      panel + k / kGroupLength * group_bytes(format));
  }
}

bool is_packable(const float* values, int64_t count, WeightFormat format) {
  if (format == WeightFormat::kBFloat16 || format == WeightFormat::kFloat16) return true;
  const float largest = largest_magnitude(values, count);
  return std::isfinite(largest) && (!is_grouped(format) || largest <= kLargestFloat16 * limit_of(format));
}

Status refused_column(const float* values, int64_t count, int64_t column, WeightFormat format) {
  const float largest = largest_magnitude(values, count);
  const std::string start = "weight: column " + std::to_string(column) + " holds ";
  const std::string name(weight_format_name(format));
  if (!std::isfinite(largest)) {
    return invalid_argument(start + (std::isnan(largest) ? "NaN" : "an infinity") + "; " + name +
                            " expects finite values");
  }
  return invalid_argument(start + "a magnitude of " + std::to_string(largest) + "; " + name + " expects at most " +
                          std::to_string(kLargestFloat16 * limit_of(format)));
}

void load_column(const TensorView& weight, int64_t column, float* values) {
  if (weight.size(0) == 0) return;  // without data
  const int64_t bytes = dtype_size_bytes(weight.dtype());
  load_row_as_f32(weight.dtype(), weight.data_as<const char>() + column * weight.stride(1) * bytes, weight.stride(0),
                  weight.size(0), values);
}

// Of a weight in `data`.
float weight_at(const PackedWeight& weight, int64_t k, int64_t j) {
  const uint8_t* panel = weight.data + j / kWeightPanelColumns * panel_bytes(weight.format, weight.inner);
  const int64_t column = j % kWeightPanelColumns;
  const auto in_group = [&] { return panel + k / kGroupLength * group_bytes(weight.format); };
  const auto group_scale = [&] {
    const int64_t offset = group_bytes(weight.format) - kGroupScaleBytes + column * 2;
    return float_from_float16_bits(load_at<uint16_t>(in_group() + offset));
  };
  const int64_t quad = k / 4 * kPanelRowBytes + column * 4 + k % 4;
  switch (weight.format) {
    case WeightFormat::kBFloat16:
      return float_from_bfloat16_bits(load_at<uint16_t>(panel + k / 2 * kPanelRowBytes + column * 4 + k % 2 * 2));
    case WeightFormat::kFloat16:
      return float_from_float16_bits(load_at<uint16_t>(panel + k * kPanelRowBytes / 2 + column * 2));
    case WeightFormat::kInt8:
      return static_cast<float>(panel[quad] - kInt8Zero) *
             load_at<float>(panel + int8_scales_offset(weight.inner) + column * 4);
    case WeightFormat::kInt8Grouped: {
      const int64_t i = k % kGroupLength;
      return static_cast<float>(in_group()[i / 4 * kPanelRowBytes + column * 4 + i % 4] - kInt8Zero) * group_scale();
    }
    case WeightFormat::kInt4Grouped: {
      const int64_t i = k % kGroupLength;
      const uint8_t pair = in_group()[i / 8 * kPanelRowBytes + column * 4 + i % 4];
      return static_cast<float>((i % 8 < 4 ? pair & 15 : pair >> 4) - kInt4Zero) * group_scale();
    }
  }
  return 0.0f;
}

}  // namespace

Result<PackedWeight> pack_weight(const TensorView& weight, WeightFormat format, std::span<uint8_t> storage) {
  QX_RETURN_IF_ERROR(check_float_operand("weight", weight));
  QX_RETURN_IF_ERROR(check_rank("weight", weight, 2));
  const int64_t inner = weight.size(0);
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_weight_size_bytes(format, inner, weight.size(1)));
  if (static_cast<int64_t>(storage.size()) < size || (size > 0 && storage.data() == nullptr)) {
    return invalid_argument("storage: expected " + std::to_string(size) + " bytes for " + weight.to_string() + " in " +
                            std::string(weight_format_name(format)) + ", got " + std::to_string(storage.size()));
  }
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(storage.data(), DType::kUInt8, std::span(&size, 1)));
  QX_RETURN_IF_ERROR(check_memory_apart("weight", weight, "storage", packed));
  const int64_t bytes = panel_bytes(format, inner);
  std::atomic<int64_t> refused = weight.size(1);  // the first column of those that cannot be packed
  parallel_for(0, num_weight_panels(weight.size(1)), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(inner));
    for (int64_t panel = begin; panel < end; ++panel) {
      clear_panel(format, inner, storage.data() + panel * bytes);
      const int64_t first = panel * kWeightPanelColumns;
      for (int64_t j = first; j < std::min(first + kWeightPanelColumns, weight.size(1)); ++j) {
        load_column(weight, j, values.data());
        if (is_packable(values.data(), inner, format)) {
          pack_column(values.data(), inner, j - first, format, storage.data() + panel * bytes);
        } else {
          for (int64_t seen = refused; j < seen && !refused.compare_exchange_weak(seen, j);) continue;
        }
      }
    }
  });
  if (refused < weight.size(1)) {
    std::vector<float> values(static_cast<size_t>(inner));
    load_column(weight, refused, values.data());
    return refused_column(values.data(), inner, refused, format);
  }
  return PackedWeight{storage.data(), inner, weight.size(1), format};
}

Status unpack_weight(const PackedWeight& weight, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_f32_operand("output", output));
  QX_RETURN_IF_ERROR(check_rank("output", output, 2));
  QX_RETURN_IF_ERROR(check_output_writable(output));
  QX_ASSIGN_OR_RETURN(int64_t size, packed_weight_size_bytes(weight.format, weight.inner, weight.columns));
  if (weight.data == nullptr && size != 0) {
    return invalid_argument("weight: null data for a packed [" + std::to_string(weight.inner) + ", " +
                            std::to_string(weight.columns) + "] matrix");
  }
  if (output.size(0) != weight.inner || output.size(1) != weight.columns) {
    return invalid_argument("output: expected [" + std::to_string(weight.inner) + ", " +
                            std::to_string(weight.columns) + "], the shape of weight, got " + output.to_string());
  }
  for (int64_t k = 0; k < weight.inner; ++k) {
    for (int64_t j = 0; j < weight.columns; ++j) {
      output.data_as<float>()[k * output.stride(0) + j * output.stride(1)] = weight_at(weight, k, j);
    }
  }
  return ok_status();
}

}  // namespace qx::kernels
