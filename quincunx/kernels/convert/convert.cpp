#include "quincunx/kernels/convert/convert.h"

#include <algorithm>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/convert/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void WidenRow(const T* source, int64_t count, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(LoadFloat(d, source + i), d, out + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) StoreFloatTail(LoadFloatTail(d, source + i, rest), d, out + i, rest);
}

template <typename T>
void NarrowRow(const float* row, int64_t count, T* destination) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) StoreFloat(hn::LoadU(d, row + i), d, destination + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) StoreFloatTail(LoadFloatTail(d, row + i, rest), d, destination + i, rest);
}

#if HWY_TARGET == HWY_SCALAR
void NarrowToBFloat16(const float* row, int64_t count, void* out) {
  NarrowRow(row, count, static_cast<BFloat16*>(out));
}
#else
// Two vectors at a time: their rounded upper halves are picked by one shuffle. NaN, which the rounding could turn into
// something else, sends its pair of vectors the longer way.
void NarrowToBFloat16(const float* row, int64_t count, void* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du32;
  const hn::Repartition<uint16_t, decltype(d)> du16;
  auto* destination = static_cast<BFloat16*>(out);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto round = [du32](hn::Vec<decltype(du32)> bits) HWY_ATTR {
    const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du32, 0x7fffu)), last);
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto low = hn::LoadU(d, row + i), high = hn::LoadU(d, row + i + lanes);
    if (!hn::AllTrue(d, hn::And(hn::Eq(low, low), hn::Eq(high, high)))) {
      StoreFloat(low, d, destination + i);
      StoreFloat(high, d, destination + i + lanes);
      continue;
    }
    const auto halves = hn::ConcatOdd(du16, hn::BitCast(du16, round(hn::BitCast(du32, high))),
                                      hn::BitCast(du16, round(hn::BitCast(du32, low))));
    hn::StoreU(halves, du16, reinterpret_cast<uint16_t*>(destination + i));
  }
  NarrowRow(row + i, count - i, destination + i);
}
#endif

void WidenBFloat16(const void* source, int64_t count, float* out) {
  WidenRow(static_cast<const BFloat16*>(source), count, out);
}
void WidenFloat16(const void* source, int64_t count, float* out) {
  WidenRow(static_cast<const Float16*>(source), count, out);
}
void NarrowToFloat16(const float* row, int64_t count, void* out) { NarrowRow(row, count, static_cast<Float16*>(out)); }

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(WidenFloat16);
HWY_EXPORT(NarrowToBFloat16);
HWY_EXPORT(NarrowToFloat16);

namespace {

// Elements converted at a time through a buffer on the stack: 2 KiB, well inside L1.
constexpr int64_t kChunk = 512;
// Elements a task converts at least: below this a thread costs more than it saves.
constexpr int64_t kGrain = 32768;

template <typename T>
void copy_strided(const T* source, int64_t source_stride, int64_t count, T* out, int64_t out_stride) {
  for (int64_t i = 0; i < count; ++i) out[i * out_stride] = source[i * source_stride];
}

void widen(DType dtype, const void* source, int64_t count, float* out) {
  if (dtype == DType::kFloat32) {
    std::copy_n(static_cast<const float*>(source), count, out);
  } else if (dtype == DType::kBFloat16) {
    HWY_DYNAMIC_DISPATCH(WidenBFloat16)(source, count, out);
  } else {
    HWY_DYNAMIC_DISPATCH(WidenFloat16)(source, count, out);
  }
}

void narrow(const float* row, int64_t count, DType dtype, void* out) {
  if (dtype == DType::kFloat32) {
    std::copy_n(row, count, static_cast<float*>(out));
  } else if (dtype == DType::kBFloat16) {
    HWY_DYNAMIC_DISPATCH(NarrowToBFloat16)(row, count, out);
  } else {
    HWY_DYNAMIC_DISPATCH(NarrowToFloat16)(row, count, out);
  }
}

}  // namespace

bool is_kernel_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

void load_row_as_f32(DType dtype, const void* source, int64_t stride, int64_t count, float* out) {
  if (stride == 1) return widen(dtype, source, count, out);
  if (dtype == DType::kFloat32) return copy_strided(static_cast<const float*>(source), stride, count, out, 1);
  uint16_t gathered[kChunk];
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t length = std::min(kChunk, count - i);
    copy_strided(static_cast<const uint16_t*>(source) + i * stride, stride, length, gathered, 1);
    widen(dtype, gathered, length, out + i);
  }
}

void store_row_from_f32(const float* row, int64_t count, DType dtype, void* destination, int64_t stride) {
  if (stride == 1) return narrow(row, count, dtype, destination);
  if (dtype == DType::kFloat32) return copy_strided(row, 1, count, static_cast<float*>(destination), stride);
  uint16_t narrowed[kChunk];
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t length = std::min(kChunk, count - i);
    narrow(row + i, length, dtype, narrowed);
    copy_strided(narrowed, 1, length, static_cast<uint16_t*>(destination) + i * stride, stride);
  }
}

Status convert(const TensorView& source, const TensorView& destination) {
  QX_RETURN_IF_ERROR(check_kernel_float("source", source));
  QX_RETURN_IF_ERROR(check_kernel_float("destination", destination));
  QX_RETURN_IF_ERROR(check_same_shape("destination", destination, "source", source));
  QX_RETURN_IF_ERROR(check_output("destination", destination, {{"source", &source}}));
  if (source.num_elements() == 0) return ok_status();

  const bool flatten = source.is_contiguous() && destination.is_contiguous();
  const RowOffsets from(source, flatten);
  const RowOffsets to(destination, flatten);
  const int64_t source_bytes = dtype_size_bytes(source.dtype());
  const int64_t destination_bytes = dtype_size_bytes(destination.dtype());
  const int64_t pieces = (from.row_length() + kChunk - 1) / kChunk;
  parallel_for(0, from.num_rows() * pieces, std::max<int64_t>(1, kGrain / std::min(kChunk, from.row_length())),
               [&](int64_t begin, int64_t end) {
                 float buffer[kChunk];
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t first = task % pieces * kChunk;
                   const int64_t length = std::min(kChunk, from.row_length() - first);
                   const int64_t in = from.offset(task / pieces) + first * from.row_stride();
                   const int64_t out = to.offset(task / pieces) + first * to.row_stride();
                   load_row_as_f32(source.dtype(), source.data_as<char>() + in * source_bytes, from.row_stride(),
                                   length, buffer);
                   store_row_from_f32(buffer, length, destination.dtype(),
                                      destination.data_as<char>() + out * destination_bytes, to.row_stride());
                 }
               });
  return ok_status();
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
