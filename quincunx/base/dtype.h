// Element types and the 16-bit float formats (float8.h has the 8-bit ones). Conversion to f32 is exact; conversion from
// f32 rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "quincunx/base/status.h"

namespace qx {

enum class DType : uint8_t {
  kBool,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};

int64_t dtype_size_bytes(DType dtype);
// "float32", "bfloat16", "int8" ...: PyTorch's spelling without the "torch." prefix.
std::string_view dtype_name(DType dtype);
Result<DType> dtype_from_name(std::string_view name);
bool is_floating_point(DType dtype);

float float_from_bfloat16_bits(uint16_t bits);
uint16_t bfloat16_bits_from_float(float value);
float float_from_float16_bits(uint16_t bits);
uint16_t float16_bits_from_float(float value);

// Storage types: arithmetic happens in f32.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) : bits(bfloat16_bits_from_float(value)) {}
  explicit operator float() const { return float_from_bfloat16_bits(bits); }
};
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) : bits(float16_bits_from_float(value)) {}
  explicit operator float() const { return float_from_float16_bits(bits); }
};
static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace qx
