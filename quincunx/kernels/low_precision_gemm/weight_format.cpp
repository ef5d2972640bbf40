#include <string>

#include "quincunx/kernels/low_precision_gemm/weight_layout.h"

namespace qx::kernels {

Result<WeightFormat> weight_format_from_name(std::string_view name) {
  for (const auto format : {WeightFormat::kBFloat16, WeightFormat::kFloat16, WeightFormat::kInt8,
                            WeightFormat::kInt8Grouped, WeightFormat::kInt4Grouped}) {
    if (weight_format_name(format) == name) return format;
  }
  return invalid_argument(
      "format: expected \"bfloat16\", \"float16\", \"int8\", \"int8_grouped\" or \"int4_grouped\", got \"" +
      std::string(name) + "\"");
}

std::string_view weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBFloat16: return "bfloat16";
    case WeightFormat::kFloat16: return "float16";
    case WeightFormat::kInt8: return "int8";
    case WeightFormat::kInt8Grouped: return "int8_grouped";
    case WeightFormat::kInt4Grouped: return "int4_grouped";
  }
  return "unknown";
}

Result<int64_t> packed_weight_size_bytes(WeightFormat format, int64_t inner, int64_t columns) {
  if (format > WeightFormat::kInt4Grouped) {
    return invalid_argument("format: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(format)));
  }
  const std::string shape = "[" + std::to_string(inner) + ", " + std::to_string(columns) + "]";
  if (inner < 0 || columns < 0) return invalid_argument("shape: sizes must not be negative, got " + shape);
  // A panel takes less than 32 bytes for each k and 256 for what is padded.
  int64_t bound = 0;
  int64_t padded = 0;
  if (__builtin_mul_overflow(inner, int64_t{64}, &bound) || __builtin_add_overflow(bound, int64_t{1024}, &bound) ||
      __builtin_add_overflow(columns, kWeightPanelColumns - 1, &padded) ||
      __builtin_mul_overflow(bound, padded / kWeightPanelColumns, &bound)) {
    return invalid_argument("shape: the packed size of " + shape + " overflows 64 bits");
  }
  return panel_bytes(format, inner) * num_weight_panels(columns);
}

}  // namespace qx::kernels
