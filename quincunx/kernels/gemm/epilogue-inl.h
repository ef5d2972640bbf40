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

// What a row of a tile needs; c, up, bias, up_bias and residual point at its first element. `up`: the sums of the
// second matrix of a gated product.
struct EpilogueRowOperands {
  float scale, row_scale;
  const float* bias;
  const float* residual;
  const float* up;
  const float* up_bias;
  int64_t columns;
  const float* sums;
  float* c;
};

template <Activation kActivation>
void EpilogueRow(const EpilogueRowOperands& row) {
  const hn::CappedTag<float, kPanelColumns> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V scale = hn::Set(d, row.scale);
  const V row_scale = hn::Set(d, row.row_scale);
  const auto finish = [&](V sum, V bias, V residual, V up, V up_bias) HWY_ATTR {
    V x = hn::Mul(sum, scale);
    if (row.bias != nullptr) x = hn::Add(x, bias);
    x = Activate<kActivation>(d, x);
    if (row.up != nullptr)
      x = hn::Mul(x, row.up_bias != nullptr ? hn::Add(hn::Mul(up, scale), up_bias) : hn::Mul(up, scale));
    x = hn::Mul(x, row_scale);
    return row.residual != nullptr ? hn::Add(x, residual) : x;
  };
  const auto load = [&](const float* from, int64_t j)
                        HWY_ATTR { return from != nullptr ? hn::LoadU(d, from + j) : hn::Zero(d); };
  int64_t j = 0;
  for (; j + lanes <= row.columns; j += lanes) {
    hn::StoreU(finish(hn::LoadU(d, row.sums + j), load(row.bias, j), load(row.residual, j), load(row.up, j),
                      load(row.up_bias, j)),
               d, row.c + j);
  }
  const int64_t rest = row.columns - j;
  if (rest == 0) return;
  HWY_ALIGN float tail[5][kPanelColumns] = {};
  const float* const sources[5] = {row.sums, row.bias, row.residual, row.up, row.up_bias};
  for (int source = 0; source < 5; ++source) {
    if (sources[source] == nullptr) continue;
    for (int64_t i = 0; i < rest; ++i) tail[source][i] = sources[source][j + i];
  }
  hn::Store(finish(hn::Load(d, tail[0]), hn::Load(d, tail[1]), hn::Load(d, tail[2]), hn::Load(d, tail[3]),
                   hn::Load(d, tail[4])),
            d, tail[0]);
  for (int64_t i = 0; i < rest; ++i) row.c[j + i] = tail[0][i];
}

using EpilogueRowFunction = void (*)(const EpilogueRowOperands&);

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

// The part of a product that one row of a tile belongs to: its row and its first column in the output.
inline EpilogueRowOperands OperandsOfRow(const Epilogue& epilogue, int64_t row, int64_t column, int64_t columns) {
  const auto at = [column](const float* vector) { return vector != nullptr ? vector + column : nullptr; };
  return {
      .scale = epilogue.scale,
      .row_scale = epilogue.row_scale != nullptr ? epilogue.row_scale[row] : 1.0f,
      .bias = at(epilogue.bias),
      .residual = at(epilogue.residual != nullptr ? epilogue.residual + row * epilogue.residual_row_stride : nullptr),
      .up = nullptr,
      .up_bias = at(epilogue.up_bias),
      .columns = columns,
      .sums = nullptr,
      .c = nullptr};
}

// The tile at (row, column), whose first element is at `c`.
inline void ApplyEpilogue(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          float* c, int64_t c_row_stride) {
  const EpilogueRowFunction finish_row = EpilogueRowFor(epilogue.activation);
  for (int64_t r = 0; r < rows; ++r) {
    EpilogueRowOperands operands = OperandsOfRow(epilogue, row + r, column, columns);
    operands.sums = operands.c = c + r * c_row_stride;
    finish_row(operands);
  }
}

// The same for a gated product: `sums` holds the tile's sums, a panel of the gate and one of the second matrix in turn.
inline void ApplyGatedEpilogue(const Epilogue& epilogue, int64_t row, int64_t rows, int64_t column, int64_t columns,
                               const float* sums, int64_t sums_row_stride, float* c, int64_t c_row_stride) {
  const EpilogueRowFunction finish_row = EpilogueRowFor(epilogue.activation);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; j += kPanelColumns) {
      EpilogueRowOperands operands = OperandsOfRow(epilogue, row + r, column + j, std::min(kPanelColumns, columns - j));
      operands.sums = sums + r * sums_row_stride + 2 * j;
      operands.up = operands.sums + kPanelColumns;
      operands.c = c + r * c_row_stride + j;
      finish_row(operands);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
