// Several arrays to one, element by element, in the order in which they are given: the arithmetic of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"

namespace qx::kernels {

enum class ReduceKind : uint8_t { kSum, kAverage, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor, kPreMulSum };

inline constexpr size_t kMaxReduceSources = 4096;

// Ok where the pair is defined; kUnimplemented names both where it is not:
//   bool: sum is "or", product is "and"; no average. Bitwise kinds: bool and integers. Minimum and maximum: no complex.
//   kPreMulSum: floating point and complex. float8_e8m0fnu, which has neither zero nor sign: minimum and maximum only.
Status check_reduce(DType dtype, ReduceKind kind);

// destination[i] = (((s0[i] op s1[i]) op s2[i]) ...), where kAverage divides the sum by the number of sources and
// kPreMulSum multiplies each source by `multiplier` first. bfloat16, float16 and float8 accumulate in f32 and round
// once, to nearest even. Integers wrap; their average truncates toward zero. Minimum and maximum return NaN where any
// source is NaN. The destination may be one of the sources, and no pointer needs to be aligned. The bits depend on the
// values and their order only. One to kMaxReduceSources sources; check_reduce must hold. Thread-safe.
void reduce(ReduceKind kind, DType dtype, std::span<const void* const> sources, int64_t count, void* destination,
            double multiplier = 1.0);

}  // namespace qx::kernels
