#include "quincunx/kernels/reduce/float8_blocks.h"

#include <array>
#include <bit>
#include <memory>

#include "quincunx/base/float8.h"

namespace qx::kernels {
namespace {

// An f32 rounded to odd in its upper half (bit 0 set where the lower half has any bit) has 8 significant bits, more
// than two above those of a float8: rounding it once more gives what rounding the f32 would.
struct Tables {
  std::array<float, 256> decode;
  std::array<uint8_t, 65536> encode;
};

template <float (*kDecode)(uint8_t), uint8_t (*kEncode)(float)>
const Tables& tables() {
  static const std::unique_ptr<const Tables> made = [] {
    auto fresh = std::make_unique<Tables>();
    for (uint32_t i = 0; i < 256; ++i) fresh->decode[i] = kDecode(static_cast<uint8_t>(i));
    for (uint32_t i = 0; i < 65536; ++i) fresh->encode[i] = kEncode(std::bit_cast<float>(i << 16));
    return fresh;
  }();
  return *made;
}

const Tables& tables_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN: return tables<float_from_float8_e4m3fn_bits, float8_e4m3fn_bits_from_float>();
    case DType::kFloat8E5M2: return tables<float_from_float8_e5m2_bits, float8_e5m2_bits_from_float>();
    case DType::kFloat8E4M3FNUZ: return tables<float_from_float8_e4m3fnuz_bits, float8_e4m3fnuz_bits_from_float>();
    default: return tables<float_from_float8_e5m2fnuz_bits, float8_e5m2fnuz_bits_from_float>();
  }
}

}  // namespace

bool has_float8_tables(DType dtype) { return dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat8E5M2FNUZ; }

void decode_float8(DType dtype, const uint8_t* source, int64_t count, float* destination) {
  const Tables& known = tables_of(dtype);
  for (int64_t i = 0; i < count; ++i) destination[i] = known.decode[source[i]];
}

void encode_float8(DType dtype, const float* source, int64_t count, uint8_t* destination) {
  const Tables& known = tables_of(dtype);
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(source[i]);
    destination[i] = known.encode[(bits >> 16) | static_cast<uint32_t>((bits & 0xffff) != 0)];
  }
}

}  // namespace qx::kernels
