#include "quincunx/base/dtype.h"

#include <array>
#include <string>

namespace qx {
namespace {

struct Entry {
  DType dtype;
  int64_t size_bytes;
  std::string_view name;
};

constexpr std::array kEntries = {
    Entry{DType::kBool, 1, "bool"},
    Entry{DType::kInt8, 1, "int8"},
    Entry{DType::kUInt8, 1, "uint8"},
    Entry{DType::kInt16, 2, "int16"},
    Entry{DType::kUInt16, 2, "uint16"},
    Entry{DType::kInt32, 4, "int32"},
    Entry{DType::kUInt32, 4, "uint32"},
    Entry{DType::kInt64, 8, "int64"},
    Entry{DType::kUInt64, 8, "uint64"},
    Entry{DType::kFloat8E4M3FN, 1, "float8_e4m3fn"},
    Entry{DType::kFloat8E5M2, 1, "float8_e5m2"},
    Entry{DType::kFloat8E4M3FNUZ, 1, "float8_e4m3fnuz"},
    Entry{DType::kFloat8E5M2FNUZ, 1, "float8_e5m2fnuz"},
    Entry{DType::kFloat8E8M0FNU, 1, "float8_e8m0fnu"},
    Entry{DType::kFloat16, 2, "float16"},
    Entry{DType::kBFloat16, 2, "bfloat16"},
    Entry{DType::kFloat32, 4, "float32"},
    Entry{DType::kFloat64, 8, "float64"},
    Entry{DType::kComplex64, 8, "complex64"},
    Entry{DType::kComplex128, 16, "complex128"},
};

constexpr bool entries_follow_the_enum() {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (static_cast<size_t>(kEntries[i].dtype) != i) return false;
  }
  return true;
}
static_assert(entries_follow_the_enum());

const Entry& entry(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  QX_CHECK(index < kEntries.size());
  return kEntries[index];
}

}  // namespace

int64_t dtype_size_bytes(DType dtype) { return entry(dtype).size_bytes; }
std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

Result<DType> dtype_from_name(std::string_view name) {
  for (const Entry& candidate : kEntries) {
    if (candidate.name == name) return candidate.dtype;
  }
  return invalid_argument("dtype: expected a name such as \"float32\" or \"bfloat16\", got \"" + std::string(name) +
                          "\"");
}

bool is_floating_point(DType dtype) { return dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat64; }

float float_from_bfloat16_bits(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t bfloat16_bits_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);  // quiet NaN
  const uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>((bits + round) >> 16);
}

float float_from_float16_bits(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x03ffu) << 13));
  }
  if (magnitude < 0x0400u) {  // zero or subnormal: the integer times 2^-24 is exact
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

uint16_t float16_bits_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x01ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 aligns the mantissa so that hardware rounds to 2^-24
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t round = 0x0fffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((magnitude + round - (112u << 23)) >> 13));
}

}  // namespace qx
