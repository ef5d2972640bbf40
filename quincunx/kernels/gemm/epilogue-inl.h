// What is done to a tile of the product before it leaves the L1 cache.
#if defined(QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_
#undef QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_
#else
#define QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/elementwise/vector_math-inl.h"
#include "quincunx/kernels/gemm/matrix_product.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <Activation kActivation, class D, class V>
HWY_INLINE V Activate(D d, V x) {
  if constexpr (kActivation == Activation::kRelu) {
    // Max may return either operand for a NaN: keep it.
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
  }
  if constexpr (kActivation == Activation::kGeluTanh) return GeluTanh(d, x);
  if constexpr (kActivation == Activation::kGeluErf) return GeluErf(d, x);
  if constexpr (kActivation == Activation::kSilu) return Silu(d, x);
  return x;
}

// `columns` elements of one row; c, bias and residual point at the first.
template <Activation kActivation>
void EpilogueRow(float scale, const float* bias, const float* residual, int64_t columns, float* c) {
  const hn::CappedTag<float, kPanelColumns> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto finish = [&](V sum, V bias_part, V residual_part) HWY_ATTR {
    V x = hn::Mul(sum, hn::Set(d, scale));
    if (bias != nullptr) x = hn::Add(x, bias_part);
    x = Activate<kActivation>(d, x);
    return residual != nullptr ? hn::Add(x, residual_part) : x;
  };
  int64_t j = 0;
  for (; j + lanes <= columns; j += lanes) {
    const V bias_part = bias != nullptr ? hn::LoadU(d, bias + j) : hn::Zero(d);
    const V residual_part = residual != nullptr ? hn::LoadU(d, residual + j) : hn::Zero(d);
    hn::StoreU(finish(hn::LoadU(d, c + j), bias_part, residual_part), d, c + j);
  }
  const int64_t rest = columns - j;
  if (rest == 0) return;
  HWY_ALIGN float tail[3][kPanelColumns] = {};
  for (int64_t i = 0; i < rest; ++i) {
    tail[0][i] = c[j + i];
    tail[1][i] = bias != nullptr ? bias[j + i] : 0.0f;
    tail[2][i] = residual != nullptr ? residual[j + i] : 0.0f;
  }
  hn::Store(finish(hn::Load(d, tail[0]), hn::Load(d, tail[1]), hn::Load(d, tail[2])), d, tail[0]);
  for (int64_t i = 0; i < rest; ++i) c[j + i] = tail[0][i];
}

using EpilogueRowFunction = void (*)(float, const float*, const float*, int64_t, float*);

inline EpilogueRowFunction EpilogueRowFor(Activation activation) {
  switch (activation) {
    case Activation::kNone: return &EpilogueRow<Activation::kNone>;
    case Activation::kRelu: return &EpilogueRow<Activation::kRelu>;
    case Activation::kGeluTanh: return &EpilogueRow<Activation::kGeluTanh>;
    case Activation::kGeluErf: return &EpilogueRow<Activation::kGeluErf>;
    case Activation::kSilu: return &EpilogueRow<Activation::kSilu>;
  }
  return nullptr;
}

// The tile at (row, column), whose first element is at `c`.
inline void ApplyEpilogue(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          float* c, int64_t c_row_stride) {
  const EpilogueRowFunction finish_row = EpilogueRowFor(epilogue.activation);
  const float* bias = epilogue.bias != nullptr ? epilogue.bias + column : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    const float* residual =
        epilogue.residual != nullptr ? epilogue.residual + (row + r) * epilogue.residual_row_stride + column : nullptr;
    finish_row(epilogue.scale, bias, residual, columns, c + r * c_row_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
