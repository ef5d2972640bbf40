// float8 formats a block at a time: decoded and encoded by tables, so that the arithmetic is that of f32 vectors.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

inline constexpr int64_t kFloat8Block = 256;

// The four formats with a sign.
bool has_float8_tables(DType dtype);
// Same values and bits as base/float8.h. count is at most kFloat8Block.
void decode_float8(DType dtype, const uint8_t* source, int64_t count, float* destination);
void encode_float8(DType dtype, const float* source, int64_t count, uint8_t* destination);

}  // namespace qx::kernels
