// A row of a panel of weights as vectors of f32: what each format stores of 16 columns and its k_per_panel_row k.
#if defined(QUINCUNX_KERNELS_LOW_PRECISION_GEMM_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_LOW_PRECISION_GEMM_WIDEN_INL_H_
#undef QUINCUNX_KERNELS_LOW_PRECISION_GEMM_WIDEN_INL_H_
#else
#define QUINCUNX_KERNELS_LOW_PRECISION_GEMM_WIDEN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 columns, or as many of them as a register holds.
using Columns = hn::CappedTag<float, kWeightPanelColumns>;
using ColumnBits = hn::RebindToUnsigned<Columns>;
using ColumnVector = hn::Vec<Columns>;

// Each format has kDepth, the k of a row, kRowBytes, kRowsPerGroup (0: no groups), and
//   Scale      what scales the columns [first, first + lanes) of a group or panel, read from `scales`
//   Widen      the kDepth vectors of these columns, read from a row
struct WidenBFloat16 {
  static constexpr int kDepth = 2;
  static constexpr int kRowBytes = 64;
  static constexpr int kRowsPerGroup = 0;

  static HWY_INLINE ColumnVector Scale(Columns d, const uint8_t* /*scales*/, int /*first*/) { return hn::Zero(d); }
  static HWY_INLINE void Widen(Columns d, const uint8_t* row, int first, ColumnVector /*scale*/,
                               ColumnVector (&weights)[kDepth]) {
    const ColumnBits bits;
    const auto pairs = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(row) + first);
    weights[0] = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    weights[1] = hn::BitCast(d, hn::And(pairs, hn::Set(bits, 0xffff0000u)));
  }
};

// Panels that have been widened before: [k][16 columns] of f32.
struct WidenedFloat32 {
  static constexpr int kDepth = 1;
  static constexpr int kRowBytes = 64;
  static constexpr int kRowsPerGroup = 0;

  static HWY_INLINE ColumnVector Scale(Columns d, const uint8_t* /*scales*/, int /*first*/) { return hn::Zero(d); }
  static HWY_INLINE void Widen(Columns d, const uint8_t* row, int first, ColumnVector /*scale*/,
                               ColumnVector (&weights)[kDepth]) {
    weights[0] = hn::LoadU(d, reinterpret_cast<const float*>(row) + first);
  }
};

struct WidenFloat16 {
  static constexpr int kDepth = 1;
  static constexpr int kRowBytes = 32;
  static constexpr int kRowsPerGroup = 0;

  static HWY_INLINE ColumnVector Scale(Columns d, const uint8_t* /*scales*/, int /*first*/) { return hn::Zero(d); }
  static HWY_INLINE void Widen(Columns d, const uint8_t* row, int first, ColumnVector /*scale*/,
                               ColumnVector (&weights)[kDepth]) {
    weights[0] = LoadFloat(d, reinterpret_cast<const Float16*>(row) + first);
  }
};

// (level - offset) * scale: exact but for the last multiplication.
template <class V>
HWY_INLINE ColumnVector ScaleLevel(Columns d, V level, float offset, ColumnVector scale) {
  const hn::RebindToSigned<Columns> integers;
  const auto value = hn::Sub(hn::ConvertTo(d, hn::BitCast(integers, level)), hn::Set(d, offset));
  return hn::Mul(value, scale);
}

struct WidenInt8 {
  static constexpr int kDepth = 4;
  static constexpr int kRowBytes = 64;
  static constexpr int kRowsPerGroup = 0;

  static HWY_INLINE ColumnVector Scale(Columns d, const uint8_t* scales, int first) {
    return hn::LoadU(d, reinterpret_cast<const float*>(scales) + first);
  }
  static HWY_INLINE void Widen(Columns d, const uint8_t* row, int first, ColumnVector scale,
                               ColumnVector (&weights)[kDepth]) {
    const ColumnBits bits;
    const auto quads = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(row) + first);
    const auto byte = hn::Set(bits, 255u);
    weights[0] = ScaleLevel(d, hn::And(quads, byte), 128.0f, scale);
    weights[1] = ScaleLevel(d, hn::And(hn::ShiftRight<8>(quads), byte), 128.0f, scale);
    weights[2] = ScaleLevel(d, hn::And(hn::ShiftRight<16>(quads), byte), 128.0f, scale);
    weights[3] = ScaleLevel(d, hn::ShiftRight<24>(quads), 128.0f, scale);
  }
};

struct WidenInt8Grouped : WidenInt8 {
  static constexpr int kRowsPerGroup = 8;

  static HWY_INLINE ColumnVector Scale(Columns d, const uint8_t* scales, int first) {
    return LoadFloat(d, reinterpret_cast<const Float16*>(scales) + first);
  }
};

struct WidenInt4Grouped {
  static constexpr int kDepth = 8;
  static constexpr int kRowBytes = 64;
  static constexpr int kRowsPerGroup = 4;

  static HWY_INLINE ColumnVector Scale(Columns d, const uint8_t* scales, int first) {
    return LoadFloat(d, reinterpret_cast<const Float16*>(scales) + first);
  }
  static HWY_INLINE void Widen(Columns d, const uint8_t* row, int first, ColumnVector scale,
                               ColumnVector (&weights)[kDepth]) {
    const ColumnBits bits;
    const auto pairs = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(row) + first);
    const auto nibble = hn::Set(bits, 15u);
    weights[0] = ScaleLevel(d, hn::And(pairs, nibble), 8.0f, scale);
    weights[1] = ScaleLevel(d, hn::And(hn::ShiftRight<8>(pairs), nibble), 8.0f, scale);
    weights[2] = ScaleLevel(d, hn::And(hn::ShiftRight<16>(pairs), nibble), 8.0f, scale);
    weights[3] = ScaleLevel(d, hn::And(hn::ShiftRight<24>(pairs), nibble), 8.0f, scale);
    weights[4] = ScaleLevel(d, hn::And(hn::ShiftRight<4>(pairs), nibble), 8.0f, scale);
    weights[5] = ScaleLevel(d, hn::And(hn::ShiftRight<12>(pairs), nibble), 8.0f, scale);
    weights[6] = ScaleLevel(d, hn::And(hn::ShiftRight<20>(pairs), nibble), 8.0f, scale);
    weights[7] = ScaleLevel(d, hn::ShiftRight<28>(pairs), 8.0f, scale);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
