// The 8-bit float formats of the OCP specification and their FNUZ relatives, as PyTorch names and converts them.
// Conversion to f32 is exact. Conversion from f32 rounds to nearest even; beyond the largest value they differ:
//
//   format     sign exponent mantissa bias  largest  smallest  beyond the largest
//   e4m3fn       1     4        3      7       448   2^-9      448 (there is no infinity)
//   e5m2         1     5        2     15     57344   2^-16     infinity
//   e4m3fnuz     1     4        3      8       240   2^-10     NaN (one zero; the only NaN is 0x80)
//   e5m2fnuz     1     5        2     16     57344   2^-17     NaN (one zero; the only NaN is 0x80)
//   e8m0fnu      0     8        0    127     2^127   2^-127    NaN (powers of two: no zero, no sign)
#pragma once

#include <cstdint>

namespace qx {

float float_from_float8_e4m3fn_bits(uint8_t bits);
uint8_t float8_e4m3fn_bits_from_float(float value);
float float_from_float8_e5m2_bits(uint8_t bits);
uint8_t float8_e5m2_bits_from_float(float value);
float float_from_float8_e4m3fnuz_bits(uint8_t bits);
uint8_t float8_e4m3fnuz_bits_from_float(float value);
float float_from_float8_e5m2fnuz_bits(uint8_t bits);
uint8_t float8_e5m2fnuz_bits_from_float(float value);
float float_from_float8_e8m0fnu_bits(uint8_t bits);
// Drops the sign; 1.5 times a power of two and more goes up. Below 2^-126 there are two codes: values up to 2^-127,
// zero among them, become 2^-127, larger ones 2^-126.
uint8_t float8_e8m0fnu_bits_from_float(float value);

}  // namespace qx
