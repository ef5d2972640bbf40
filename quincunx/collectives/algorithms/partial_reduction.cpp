#include "quincunx/collectives/algorithms/partial_reduction.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "quincunx/base/check.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/reduce/float8_blocks.h"

namespace qx::collectives {
namespace {

bool is_narrow_float(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16 || kernels::has_float8_tables(dtype);
}

bool accumulates(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kProduct || op == ReduceOp::kPreMulSum;
}

template <typename T>
void divide_as(const void* source, int64_t count, int divisor, void* destination) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  // In int64, where every integer type but uint64 fits and a divisor of 4096 does not wrap.
  using Wide = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, uint64_t>, int64_t, T>;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<Wide>(from[i]) / static_cast<Wide>(divisor));
}

// The types that have an average.
void divide(DType dtype, const void* source, int64_t count, int divisor, void* destination) {
  switch (dtype) {
    case DType::kFloat32: return divide_as<float>(source, count, divisor, destination);
    case DType::kFloat64: return divide_as<double>(source, count, divisor, destination);
    case DType::kInt8: return divide_as<int8_t>(source, count, divisor, destination);
    case DType::kInt16: return divide_as<int16_t>(source, count, divisor, destination);
    case DType::kInt32: return divide_as<int32_t>(source, count, divisor, destination);
    case DType::kInt64: return divide_as<int64_t>(source, count, divisor, destination);
    case DType::kUInt8: return divide_as<uint8_t>(source, count, divisor, destination);
    case DType::kUInt16: return divide_as<uint16_t>(source, count, divisor, destination);
    case DType::kUInt32: return divide_as<uint32_t>(source, count, divisor, destination);
    case DType::kUInt64: return divide_as<uint64_t>(source, count, divisor, destination);
    default: QX_CHECK(false);
  }
}

void narrow(const float* source, int64_t count, DType dtype, void* destination) {
  if (!kernels::has_float8_tables(dtype)) return kernels::store_row_from_f32(source, count, dtype, destination, 1);
  for (int64_t i = 0; i < count; i += kernels::kFloat8Block) {
    const int64_t size = std::min(kernels::kFloat8Block, count - i);
    kernels::encode_float8(dtype, source + i, size, static_cast<uint8_t*>(destination) + i);
  }
}

}  // namespace

PartialReduction::PartialReduction(const Reduction& reduction, DType result)
    : first(reduction),
      between(reduction),
      dtype(is_narrow_float(result) && accumulates(reduction.op) ? DType::kFloat32 : result),
      averages(reduction.op == ReduceOp::kAverage) {
  if (averages) first.op = ReduceOp::kSum;
  if (averages || reduction.op == ReduceOp::kPreMulSum) between = {};
}

void widen(DType dtype, const void* source, int64_t count, float* destination) {
  if (!kernels::has_float8_tables(dtype)) return kernels::load_row_as_f32(dtype, source, 1, count, destination);
  for (int64_t i = 0; i < count; i += kernels::kFloat8Block) {
    const int64_t size = std::min(kernels::kFloat8Block, count - i);
    kernels::decode_float8(dtype, static_cast<const uint8_t*>(source) + i, size, destination + i);
  }
}

void finish_reduction(const PartialReduction& partial, const void* source, int64_t count, int num_contributions,
                      DType dtype, void* destination) {
  if (partial.dtype == dtype) {
    if (partial.averages) return divide(dtype, source, count, num_contributions, destination);
    if (source != destination) std::memcpy(destination, source, static_cast<size_t>(count * dtype_size_bytes(dtype)));
    return;
  }
  const auto* from = static_cast<const float*>(source);
  if (!partial.averages) return narrow(from, count, dtype, destination);
  constexpr int64_t kBlock = 1024;
  float block[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t size = std::min(kBlock, count - i);
    divide_as<float>(from + i, size, num_contributions, block);
    narrow(block, size, dtype, static_cast<std::byte*>(destination) + i * dtype_size_bytes(dtype));
  }
}

}  // namespace qx::collectives
