#include "quincunx/kernels/softmax/softmax.h"

#include <limits>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/softmax/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// NaN may be dropped: exp and the sum carry it to the whole row.
HWY_INLINE float LargestOf(const float* x, int64_t count) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vector a = lowest, b = lowest;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = hn::Max(hn::LoadU(d, x + i), a);
    b = hn::Max(hn::LoadU(d, x + i + lanes), b);
  }
  if (i + lanes <= count) {
    a = hn::Max(hn::LoadU(d, x + i), a);
    i += lanes;
  }
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) b = hn::Max(hn::IfThenElse(hn::FirstN(d, rest), LoadFloatTail(d, x + i, rest), lowest), b);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
}

void SoftmaxRow(const float* x, int64_t count, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector largest = hn::Set(d, LargestOf(x, count));
  Vector a = hn::Zero(d), b = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const Vector e0 = Exp(d, hn::Sub(hn::LoadU(d, x + i), largest));
    const Vector e1 = Exp(d, hn::Sub(hn::LoadU(d, x + i + lanes), largest));
    hn::StoreU(e0, d, y + i);
    hn::StoreU(e1, d, y + i + lanes);
    a = hn::Add(a, e0);
    b = hn::Add(b, e1);
  }
  if (i + lanes <= count) {
    const Vector e = Exp(d, hn::Sub(hn::LoadU(d, x + i), largest));
    hn::StoreU(e, d, y + i);
    a = hn::Add(a, e);
    i += lanes;
  }
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) {
    const Vector e = Exp(d, hn::Sub(LoadFloatTail(d, x + i, rest), largest));
    StoreFloatTail(e, d, y + i, rest);
    b = hn::Add(b, hn::IfThenElseZero(hn::FirstN(d, rest), e));
  }
  const Vector scale = hn::Set(d, 1 / hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))));
  for (i = 0; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scale), d, y + i);
  if (rest != 0) StoreFloatTail(hn::Mul(LoadFloatTail(d, y + i, rest), scale), d, y + i, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(SoftmaxRow);

Status softmax(const TensorView& input, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_not_scalar("input", input));
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_output("output", output, {{"input", &input}}));
  for_each_row_as_f32(input, output,
                      [&](const float* x, float* y) { HWY_DYNAMIC_DISPATCH(SoftmaxRow)(x, input.size(-1), y); });
  return ok_status();
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
