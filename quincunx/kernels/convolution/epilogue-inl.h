// What is done to a row of sums, channels adjacent, while it is in the L1 cache.
#if defined(QUINCUNX_KERNELS_CONVOLUTION_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_CONVOLUTION_EPILOGUE_INL_H_
#undef QUINCUNX_KERNELS_CONVOLUTION_EPILOGUE_INL_H_
#else
#define QUINCUNX_KERNELS_CONVOLUTION_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keeps NaN, of which minimum and maximum may return the other operand.
template <class D, class V>
HWY_INLINE V Clamp(D d, V x, float low, float high) {
  const V lowest = hn::Set(d, low);
  const V highest = hn::Set(d, high);
  const V raised = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
  return hn::IfThenElse(hn::Gt(raised, highest), highest, raised);
}

template <ConvolutionActivation kActivation, class D, class V>
HWY_INLINE V ActivateSum(D d, V x, [[maybe_unused]] const ConvolutionEpilogue& epilogue) {
  using A = ConvolutionActivation;
  if constexpr (kActivation == A::kRelu) return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
  if constexpr (kActivation == A::kGeluTanh) return GeluTanh(d, x);
  if constexpr (kActivation == A::kGeluErf) return GeluErf(d, x);
  if constexpr (kActivation == A::kSilu) return Silu(d, x);
  if constexpr (kActivation == A::kClamp) return Clamp(d, x, epilogue.clamp_low, epilogue.clamp_high);
  if constexpr (kActivation == A::kHardswish) {
    const V gate = Clamp(d, hn::Add(x, hn::Set(d, 3.0f)), 0.0f, 6.0f);
    return hn::Mul(hn::Mul(x, gate), hn::Set(d, 1.0f / 6.0f));
  }
  return x;
}

// Null where there is none; all point at the first channel of the row.
struct RowOperands {
  const float* scale;
  const float* bias;
  const float* residual;
};

template <ConvolutionActivation kActivation>
void FinishRow(const ConvolutionEpilogue& epilogue, const RowOperands& operands, int64_t channels, float* row) {
  const hn::CappedTag<float, kChannelBlock> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool residual_first = epilogue.residual_before_activation;
  const auto finish = [&](V x, V scale, V bias, V residual) HWY_ATTR {
    if (operands.scale != nullptr) x = hn::Mul(x, scale);
    if (operands.bias != nullptr) x = hn::Add(x, bias);
    if (operands.residual != nullptr && residual_first) x = hn::Add(x, residual);
    x = ActivateSum<kActivation>(d, x, epilogue);
    return operands.residual != nullptr && !residual_first ? hn::Add(x, residual) : x;
  };
  const auto load = [&](const float* from, int64_t j)
                        HWY_ATTR { return from != nullptr ? hn::LoadU(d, from + j) : hn::Zero(d); };
  int64_t j = 0;
  for (; j + lanes <= channels; j += lanes) {
    hn::StoreU(
        finish(hn::LoadU(d, row + j), load(operands.scale, j), load(operands.bias, j), load(operands.residual, j)), d,
        row + j);
  }
  const int64_t rest = channels - j;
  if (rest == 0) return;
  HWY_ALIGN float tail[4][kChannelBlock] = {};
  for (int64_t i = 0; i < rest; ++i) {
    tail[0][i] = row[j + i];
    if (operands.scale != nullptr) tail[1][i] = operands.scale[j + i];
    if (operands.bias != nullptr) tail[2][i] = operands.bias[j + i];
    if (operands.residual != nullptr) tail[3][i] = operands.residual[j + i];
  }
  hn::Store(finish(hn::Load(d, tail[0]), hn::Load(d, tail[1]), hn::Load(d, tail[2]), hn::Load(d, tail[3])), d, tail[0]);
  for (int64_t i = 0; i < rest; ++i) row[j + i] = tail[0][i];
}

using FinishRowFunction = void (*)(const ConvolutionEpilogue&, const RowOperands&, int64_t, float*);

inline FinishRowFunction FinishRowFor(ConvolutionActivation activation) {
  using A = ConvolutionActivation;
  switch (activation) {
    case A::kNone: return &FinishRow<A::kNone>;
    case A::kRelu: return &FinishRow<A::kRelu>;
    case A::kGeluTanh: return &FinishRow<A::kGeluTanh>;
    case A::kGeluErf: return &FinishRow<A::kGeluErf>;
    case A::kSilu: return &FinishRow<A::kSilu>;
    case A::kHardswish: return &FinishRow<A::kHardswish>;
    case A::kClamp: return &FinishRow<A::kClamp>;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
