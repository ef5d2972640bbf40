// Orders of elements along one dimension. Sorting is stable, and NaN is larger than every number.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/reduction.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

template <typename C>
bool is_less(C x, C y) {
  return x < y || (y != y && x == x);
}

template <typename C>
void order_row(const TensorView& row, bool descending, int64_t wanted, const TensorView* values,
               const TensorView* indices) {
  const int64_t count = row.num_elements();
  const auto step = [](const TensorView& x) { return x.num_dims() == 0 ? 1 : x.stride(0); };
  std::vector<C> buffer(static_cast<size_t>(count));
  const C* loaded = load_row(row.dtype(), row.data(), step(row), count, buffer.data());
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  // Equal elements stay in order through their indices: libstdc++ 12's stable_sort draws a deprecation warning.
  std::sort(order.begin(), order.end(), [&](int64_t left, int64_t right) {
    const C x = loaded[descending ? right : left];
    const C y = loaded[descending ? left : right];
    return is_less(x, y) || (!is_less(y, x) && left < right);
  });
  std::vector<C> sorted(static_cast<size_t>(wanted));
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = loaded[order[i]];
  if (values != nullptr) store_row(sorted.data(), wanted, values->dtype(), values->data(), step(*values));
  if (indices != nullptr) store_row(order.data(), wanted, indices->dtype(), indices->data(), step(*indices));
}

Status order(const TensorView& x, int64_t dim, bool descending, const TensorView* values, const TensorView* indices) {
  if (!is_computable(x.dtype())) return unimplemented("no order of " + x.to_string());
  const TensorView& shape = values != nullptr ? *values : *indices;
  QX_ASSIGN_OR_RETURN(const ReductionFrame from, ReductionFrame::create(x, {dim}));
  QX_ASSIGN_OR_RETURN(const ReductionFrame to, ReductionFrame::create(shape, {dim}));
  std::optional<ReductionFrame> places;
  if (indices != nullptr && !std::ranges::equal(indices->shape(), shape.shape())) {
    return invalid_argument("indices: expected the shape of the values " + shape.to_string());
  }
  if (indices != nullptr) {
    QX_ASSIGN_OR_RETURN(places, ReductionFrame::create(*indices, {dim}));
  }
  if (from.num_results() != to.num_results() || to.num_reduced() > from.num_reduced()) {
    return invalid_argument("k: expected at most " + std::to_string(from.num_reduced()) + ", got " +
                            std::to_string(to.num_reduced()));
  }
  parallel_for(0, from.num_results(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const TensorView to_values = to.reduced(row);
      const TensorView to_indices = places ? places->reduced(row) : TensorView();
      const TensorView* first = values != nullptr ? &to_values : nullptr;
      const TensorView* second = places ? &to_indices : nullptr;
      if (is_floating_point(x.dtype())) {
        order_row<double>(from.reduced(row), descending, to.num_reduced(), first, second);
      } else {
        order_row<int64_t>(from.reduced(row), descending, to.num_reduced(), first, second);
      }
    }
  });
  return ok_status();
}

// sort(x, dim, descending)
Status run_sort(const Call& call) {
  return order(call.tensor(0), call.integer(1, -1), call.flag(2), &call.result(), call.optional_result(1));
}
// sort.stable(x, stable, dim, descending)
Status run_sort_stable(const Call& call) {
  return order(call.tensor(0), call.integer(2, -1), call.flag(3), &call.result(), call.optional_result(1));
}
Status run_argsort(const Call& call) {
  return order(call.tensor(0), call.integer(1, -1), call.flag(2), nullptr, &call.result());
}
// topk(x, k, dim, largest, sorted)
Status run_topk(const Call& call) {
  return order(call.tensor(0), call.integer(2, -1), call.flag(3, true), &call.result(), call.optional_result(1));
}

constexpr Operator kOperators[] = {
    {"aten.sort.default", "Tjb", run_sort},
    {"aten.sort.stable", "Tbjb", run_sort_stable},
    {"aten.argsort.default", "Tjb", run_argsort},
    {"aten.topk.default", "Tijbb", run_topk},
};

}  // namespace

std::span<const Operator> sort_operators() { return kOperators; }

}  // namespace qx::lite
