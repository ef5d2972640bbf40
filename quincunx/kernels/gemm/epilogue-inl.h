// What is done to a tile of the product before it leaves the L1 cache.
#if defined(QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_
#undef QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_
#else
#define QUINCUNX_KERNELS_GEMM_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
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

// A tile of the output: `sums` become c. `sums` may be c. In a gated product the sums of the second matrix lie at `up`,
// a panel further on, and the tile is one panel wide.
struct EpilogueTile {
  int64_t row, rows;
  int64_t column, columns;
  const float* sums;
  int64_t sums_row_stride;
  const float* up;  // or null
  float* c;
  int64_t c_row_stride;
};

template <Activation kActivation>
void CompleteTile(const Epilogue& epilogue, const EpilogueTile& tile) {
  const hn::CappedTag<float, kPanelColumns> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V scale = hn::Set(d, epilogue.scale);
  const float* bias = epilogue.bias != nullptr ? epilogue.bias + tile.column : nullptr;
  const float* up_bias = epilogue.up_bias != nullptr ? epilogue.up_bias + tile.column : nullptr;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* sums = tile.sums + r * tile.sums_row_stride;
    const float* up = tile.up != nullptr ? tile.up + r * tile.sums_row_stride : nullptr;
    float* c = tile.c + r * tile.c_row_stride;
    const float* residual = epilogue.residual != nullptr
                                ? epilogue.residual + (tile.row + r) * epilogue.residual_row_stride + tile.column
                                : nullptr;
    const V row_scale = hn::Set(d, epilogue.row_scale != nullptr ? epilogue.row_scale[tile.row + r] : 1.0f);
    const auto finish = [&](V x, V bias_part, V up_part, V up_bias_part, V residual_part) HWY_ATTR {
      x = Activate<kActivation>(d, hn::Add(hn::Mul(x, scale), bias_part));
      if (up != nullptr) x = hn::Mul(x, hn::Add(hn::Mul(up_part, scale), up_bias_part));
      return hn::Add(hn::Mul(x, row_scale), residual_part);
    };
    // Adding -0 changes nothing, not even the sign of a zero.
    const V nothing = hn::Set(d, -0.0f);
    const auto load = [&](const float* from, int64_t j)
                          HWY_ATTR { return from != nullptr ? hn::LoadU(d, from + j) : nothing; };
    int64_t j = 0;
    for (; j + lanes <= tile.columns; j += lanes) {
      hn::StoreU(finish(hn::LoadU(d, sums + j), load(bias, j), load(up, j), load(up_bias, j), load(residual, j)), d,
                 c + j);
    }
    const int64_t rest = tile.columns - j;
    if (rest == 0) continue;
    HWY_ALIGN float tail[5][kPanelColumns];
    const float* const sources[5] = {sums, bias, up, up_bias, residual};
    for (int source = 0; source < 5; ++source) {
      hn::Store(nothing, d, tail[source]);
      if (sources[source] == nullptr) continue;
      for (int64_t i = 0; i < rest; ++i) tail[source][i] = sources[source][j + i];
    }
    hn::Store(finish(hn::Load(d, tail[0]), hn::Load(d, tail[1]), hn::Load(d, tail[2]), hn::Load(d, tail[3]),
                     hn::Load(d, tail[4])),
              d, tail[0]);
    for (int64_t i = 0; i < rest; ++i) c[j + i] = tail[0][i];
  }
}

inline void CompleteTileBy(Activation activation, const Epilogue& epilogue, const EpilogueTile& tile) {
  switch (activation) {
    case Activation::kNone: return CompleteTile<Activation::kNone>(epilogue, tile);
    case Activation::kRelu: return CompleteTile<Activation::kRelu>(epilogue, tile);
    case Activation::kGeluTanh: return CompleteTile<Activation::kGeluTanh>(epilogue, tile);
    case Activation::kGeluErf: return CompleteTile<Activation::kGeluErf>(epilogue, tile);
    case Activation::kSilu: return CompleteTile<Activation::kSilu>(epilogue, tile);
  }
}

// The tile at (row, column), whose first element is at `c`.
inline void ApplyEpilogue(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          float* c, int64_t c_row_stride) {
  CompleteTileBy(epilogue.activation, epilogue,
                 {row, rows, column, columns, c, c_row_stride, nullptr, c, c_row_stride});
}

// The same for a gated product: `sums` holds the tile's sums, a panel of the gate and one of the second matrix in turn.
inline void ApplyGatedEpilogue(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns,
                               const float* sums, int64_t sums_row_stride, float* c, int64_t c_row_stride) {
  for (int64_t j = 0; j < columns; j += kPanelColumns) {
    CompleteTileBy(epilogue.activation, epilogue,
                   {row, rows, column + j, std::min(kPanelColumns, columns - j), sums + 2 * j, sums_row_stride,
                    sums + 2 * j + kPanelColumns, c + j, c_row_stride});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
