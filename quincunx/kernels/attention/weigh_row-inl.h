// One step of the online softmax on a row of scores. Include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_ATTENTION_WEIGH_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ATTENTION_WEIGH_ROW_INL_H_
#undef QUINCUNX_KERNELS_ATTENTION_WEIGH_ROW_INL_H_
#else
#define QUINCUNX_KERNELS_ATTENTION_WEIGH_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Turns the first `count` base-2 scores of a row into weights 2^(score - largest), zeros up to `end`, and updates the
// state: the largest score and the sum of the weights of all rows so far; `correction` is what sums over earlier scores
// must be multiplied by. `scores` is 64-byte aligned, with room up to the next multiple of 16.
inline void WeighRow(float* scores, int64_t count, int64_t end, float& largest, float& sum, float& correction) {
  const hn::CappedTag<float, kAttentionPanel> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V lowest = hn::Set(d, kNegativeInfinity);
  V a = lowest, b = lowest;
  const auto load = [&](int64_t i) HWY_ATTR {
    const V v = hn::Load(d, scores + i);
    return i + lanes <= count ? v : hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count - i)), v, lowest);
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = hn::Max(hn::Load(d, scores + i), a);
    b = hn::Max(hn::Load(d, scores + i + lanes), b);
  }
  for (; i < count; i += lanes) a = hn::Max(load(i), a);
  const float before = largest;
  largest = std::max(before, hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b))));
  // While every score is -inf there is nothing to subtract; -inf - 0 gives the weight 0.
  const float reference = largest == kNegativeInfinity ? 0.0f : largest;
  const V offset = hn::Set(d, reference);
  V total_a = hn::Zero(d), total_b = hn::Zero(d);
  for (i = 0; i + 2 * lanes <= count; i += 2 * lanes) {
    const V w0 = Exp2OfNonPositive(d, hn::Sub(hn::Load(d, scores + i), offset));
    const V w1 = Exp2OfNonPositive(d, hn::Sub(hn::Load(d, scores + i + lanes), offset));
    hn::Store(w0, d, scores + i);
    hn::Store(w1, d, scores + i + lanes);
    total_a = hn::Add(total_a, w0);
    total_b = hn::Add(total_b, w1);
  }
  for (; i < count; i += lanes) {
    const V w = Exp2OfNonPositive(d, hn::Sub(load(i), offset));
    hn::Store(w, d, scores + i);
    total_a = hn::Add(total_a, w);
  }
  for (; i < end; i += lanes) hn::Store(hn::Zero(d), d, scores + i);
  correction = std::exp2(before - reference);
  sum = sum * correction + hn::GetLane(hn::SumOfLanes(d, hn::Add(total_a, total_b)));
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
