#include "quincunx/kernels/attention/attention_backward_kernel.h"

#include <algorithm>
#include <limits>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/attention/attention_backward_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/attention/attention_tiles-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

template <bool kIsSum, int kRows, int kPanels>
void ProductTile(const PanelProduct& p, const Panels& panels, const float* a, float* c) {
  const TileTag d;
  constexpr int kVectors = kPanels * kTileVectors, kLanes = kAttentionPanel / kTileVectors;
  TileVector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = kIsSum ? hn::Load(d, c + r * p.c_stride + v * kLanes) : hn::Zero(d);
    }
  }
  AccumulateTile<kRows, kPanels>(a, p.a_row_step, p.a_depth_step, p.depth, panels, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, c + r * p.c_stride + v * kLanes);
  }
}

template <bool kIsSum>
void Product(const PanelProduct& p) {
  ForEachTileColumn(p.columns, [&](int64_t column, int64_t panels) HWY_ATTR {
    const Panels b{p.panels + column * p.panel_rows, kAttentionPanel * p.panel_rows};
    for (int64_t row = 0; row < p.rows; row += kTileRows) {
      WithTileSize(std::min<int64_t>(kTileRows, p.rows - row), panels, [&](auto r, auto n) HWY_ATTR {
        ProductTile<kIsSum, decltype(r)::kValue, decltype(n)::kValue>(p, b, p.a + row * p.a_row_step,
                                                                      p.c + row * p.c_stride + column);
      });
    }
  });
}
void AccumulateProduct(const PanelProduct& p) { Product<true>(p); }
void StoreProduct(const PanelProduct& p) { Product<false>(p); }

void DifferentiateWeights(const WeightRow& row) {
  const TileTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const TileVector scale_log2 = hn::Set(d, row.scale * std::numbers::log2e_v<float>);
  const TileVector scale = hn::Set(d, row.scale), log2_sum = hn::Set(d, row.log2_sum), delta = hn::Set(d, row.delta);
  const TileVector hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i < row.count; i += lanes) {
    TileVector exponent = hn::MulSub(hn::Load(d, row.scores + i), scale_log2, log2_sum);
    if (row.bias != nullptr) exponent = hn::Add(exponent, hn::Load(d, row.bias + i));
    TileVector weight = Exp2OfNonPositive(d, exponent);
    TileVector grad = hn::Mul(hn::Mul(weight, hn::Sub(hn::Load(d, row.weight_grads + i), delta)), scale);
    if (row.bias != nullptr) {
      const auto is_hidden = hn::Eq(hn::Load(d, row.bias + i), hidden);
      weight = hn::IfThenZeroElse(is_hidden, weight);
      grad = hn::IfThenZeroElse(is_hidden, grad);
    }
    if (i + lanes > row.count) {
      const auto is_visible = hn::FirstN(d, static_cast<size_t>(row.count - i));
      weight = hn::IfThenElseZero(is_visible, weight);
      grad = hn::IfThenElseZero(is_visible, grad);
    }
    hn::Store(weight, d, row.scores + i);
    hn::Store(grad, d, row.weight_grads + i);
  }
  for (; i < row.end; i += lanes) {
    hn::Store(hn::Zero(d), d, row.scores + i);
    hn::Store(hn::Zero(d), d, row.weight_grads + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(AccumulateProduct);
HWY_EXPORT(StoreProduct);
HWY_EXPORT(DifferentiateWeights);

void accumulate_product(const PanelProduct& product) { HWY_DYNAMIC_DISPATCH(AccumulateProduct)(product); }
void store_product(const PanelProduct& product) { HWY_DYNAMIC_DISPATCH(StoreProduct)(product); }
void differentiate_weights(const WeightRow& row) { HWY_DYNAMIC_DISPATCH(DifferentiateWeights)(row); }

}  // namespace qx::kernels
#endif  // HWY_ONCE
