#include "quincunx/kernels/reduce/reduce.h"

#include <algorithm>
#include <array>
#include <string>

#include "quincunx/base/check.h"
#include "quincunx/kernels/reduce/float8_blocks.h"
#include "quincunx/kernels/reduce/reduce_reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/reduce/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// Elements that are their own accumulator; the overloads for f32, bf16 and f16 come from float_storage-inl.h.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadElement(D d, const T* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadElement(D d, const BFloat16* p) {
  return LoadFloat(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadElement(D d, const Float16* p) {
  return LoadFloat(d, p);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreElement(hn::Vec<D> v, D d, T* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void StoreElement(hn::Vec<D> v, D d, BFloat16* p) {
  StoreFloat(v, d, p);
}
template <class D>
HWY_INLINE void StoreElement(hn::Vec<D> v, D d, Float16* p) {
  StoreFloat(v, d, p);
}

struct Add {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Multiply {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct BitAnd {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::And(a, b);
  }
};
struct BitOr {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Or(a, b);
  }
};
struct BitXor {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Xor(a, b);
  }
};
// Where a is NaN a is taken; where b is, the comparison fails and b is. Not Ne: Highway 1.0.3 has it false for NaN.
struct Minimum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::Not(hn::Eq(a, a))), a, b);
  }
};
struct Maximum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::Not(hn::Eq(a, a))), a, b);
  }
};

// Reduces the whole vectors of the arrays and returns how many elements those are. kDivide: the average's last step;
// kScale: kPreMulSum's first.
template <typename T, typename A, class Combine, bool kDivide = false, bool kScale = false>
int64_t ReduceVectors(const void* const* sources, size_t num_sources, int64_t count, void* destination, double factor) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, static_cast<A>(factor));
  const Combine combine;
  const auto load = [&](size_t s, int64_t i) HWY_ATTR {
    const auto value = LoadElement(d, static_cast<const T*>(sources[s]) + i);
    if constexpr (kScale)
      return hn::Mul(value, scale);
    else
      return value;
  };
  const auto finish = [&](hn::Vec<decltype(d)> value, int64_t i) HWY_ATTR {
    if constexpr (kDivide) value = hn::Div(value, scale);
    StoreElement(value, d, static_cast<T*>(destination) + i);
  };
  int64_t i = 0;
  // Two accumulators hide the latency of the conversion and of the dependent sum.
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    auto first = load(0, i);
    auto second = load(0, i + lanes);
    for (size_t s = 1; s < num_sources; ++s) {
      first = combine(first, load(s, i));
      second = combine(second, load(s, i + lanes));
    }
    finish(first, i);
    finish(second, i + lanes);
  }
  return i;
}

template <typename T, typename A>
int64_t ReduceFloats(ReduceKind kind, const void* const* sources, size_t num_sources, int64_t count, void* destination,
                     double multiplier) {
  const auto divisor = static_cast<double>(num_sources);
  switch (kind) {
    case ReduceKind::kSum: return ReduceVectors<T, A, Add>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kAverage: return ReduceVectors<T, A, Add, true>(sources, num_sources, count, destination, divisor);
    case ReduceKind::kProduct: return ReduceVectors<T, A, Multiply>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kMin: return ReduceVectors<T, A, Minimum>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kMax: return ReduceVectors<T, A, Maximum>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kPreMulSum:
      return ReduceVectors<T, A, Add, false, true>(sources, num_sources, count, destination, multiplier);
    default: return 0;
  }
}

template <typename T>
int64_t ReduceIntegers(ReduceKind kind, const void* const* sources, size_t num_sources, int64_t count,
                       void* destination) {
  switch (kind) {
    case ReduceKind::kSum: return ReduceVectors<T, T, Add>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kMin: return ReduceVectors<T, T, Minimum>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kMax: return ReduceVectors<T, T, Maximum>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kBitAnd: return ReduceVectors<T, T, BitAnd>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kBitOr: return ReduceVectors<T, T, BitOr>(sources, num_sources, count, destination, 1.0);
    case ReduceKind::kBitXor: return ReduceVectors<T, T, BitXor>(sources, num_sources, count, destination, 1.0);
    default: return 0;
  }
}

// 0 where there is no vector kernel for the pair.
int64_t ReduceWholeVectors(ReduceKind kind, DType dtype, const void* const* sources, size_t num_sources, int64_t count,
                           void* destination, double multiplier) {
  switch (dtype) {
    case DType::kFloat32: return ReduceFloats<float, float>(kind, sources, num_sources, count, destination, multiplier);
    case DType::kBFloat16:
      return ReduceFloats<BFloat16, float>(kind, sources, num_sources, count, destination, multiplier);
    case DType::kFloat16:
      return ReduceFloats<Float16, float>(kind, sources, num_sources, count, destination, multiplier);
#if HWY_HAVE_FLOAT64
    case DType::kFloat64:
      return ReduceFloats<double, double>(kind, sources, num_sources, count, destination, multiplier);
#endif
    case DType::kInt8: return ReduceIntegers<int8_t>(kind, sources, num_sources, count, destination);
    case DType::kUInt8: return ReduceIntegers<uint8_t>(kind, sources, num_sources, count, destination);
    case DType::kInt16: return ReduceIntegers<int16_t>(kind, sources, num_sources, count, destination);
    case DType::kUInt16: return ReduceIntegers<uint16_t>(kind, sources, num_sources, count, destination);
    case DType::kUInt32: return ReduceIntegers<uint32_t>(kind, sources, num_sources, count, destination);
    case DType::kUInt64: return ReduceIntegers<uint64_t>(kind, sources, num_sources, count, destination);
    case DType::kInt32: return ReduceIntegers<int32_t>(kind, sources, num_sources, count, destination);
    case DType::kInt64: return ReduceIntegers<int64_t>(kind, sources, num_sources, count, destination);
    default: return 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(ReduceWholeVectors);

namespace {

constexpr std::array<std::string_view, 9> kKindNames = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                        "BAND", "BOR", "BXOR",    "PREMUL_SUM"};

bool is_defined(DType dtype, ReduceKind kind) {
  const bool ordered = kind == ReduceKind::kMin || kind == ReduceKind::kMax;
  const bool bitwise = kind == ReduceKind::kBitAnd || kind == ReduceKind::kBitOr || kind == ReduceKind::kBitXor;
  if (dtype == DType::kFloat8E8M0FNU) return ordered;
  if (dtype == DType::kBool) return kind != ReduceKind::kAverage && kind != ReduceKind::kPreMulSum;
  if (dtype <= DType::kUInt64) return kind != ReduceKind::kPreMulSum;
  if (dtype >= DType::kComplex64) return !ordered && !bitwise;
  return !bitwise;
}

// Two sources at a time, in their order; AVG divides and PREMUL_SUM scales as for f32.
void reduce_float8(ReduceKind kind, DType dtype, std::span<const void* const> sources, int64_t count, void* destination,
                   double multiplier) {
  float total[kFloat8Block], next[kFloat8Block];
  const void* const pair[2] = {total, next};
  const bool scales = kind == ReduceKind::kPreMulSum, averages = kind == ReduceKind::kAverage;
  const auto decode = [&](size_t s, int64_t begin, int64_t size, float* out) {
    decode_float8(dtype, static_cast<const uint8_t*>(sources[s]) + begin, size, out);
    const void* const one[1] = {out};
    if (scales) reduce(ReduceKind::kPreMulSum, DType::kFloat32, one, size, out, multiplier);
  };
  for (int64_t begin = 0; begin < count; begin += kFloat8Block) {
    const int64_t size = std::min(kFloat8Block, count - begin);
    decode(0, begin, size, total);
    for (size_t s = 1; s < sources.size(); ++s) {
      decode(s, begin, size, next);
      reduce(scales || averages ? ReduceKind::kSum : kind, DType::kFloat32, pair, size, total);
    }
    if (averages) {
      const auto divisor = static_cast<float>(sources.size());
      for (int64_t i = 0; i < size; ++i) total[i] /= divisor;
    }
    encode_float8(dtype, total, size, static_cast<uint8_t*>(destination) + begin);
  }
}

}  // namespace

Status check_reduce(DType dtype, ReduceKind kind) {
  if (is_defined(dtype, kind)) return ok_status();
  return unimplemented("reduction " + std::string(kKindNames[static_cast<size_t>(kind)]) + " is not defined for " +
                       std::string(dtype_name(dtype)));
}

void reduce(ReduceKind kind, DType dtype, std::span<const void* const> sources, int64_t count, void* destination,
            double multiplier) {
  QX_CHECK(!sources.empty() && sources.size() <= kMaxReduceSources && is_defined(dtype, kind));
  if (has_float8_tables(dtype)) return reduce_float8(kind, dtype, sources, count, destination, multiplier);
  const int64_t done = HWY_DYNAMIC_DISPATCH(ReduceWholeVectors)(kind, dtype, sources.data(), sources.size(), count,
                                                                destination, multiplier);
  if (done == count) return;
  const int64_t offset = done * dtype_size_bytes(dtype);
  if (offset == 0) return reduce_reference(kind, dtype, sources, count, destination, multiplier);
  std::array<const void*, kMaxReduceSources> rest;  // 32 KiB, touched as far as used
  for (size_t s = 0; s < sources.size(); ++s) rest[s] = static_cast<const char*>(sources[s]) + offset;
  reduce_reference(kind, dtype, {rest.data(), sources.size()}, count - done, static_cast<char*>(destination) + offset,
                   multiplier);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
