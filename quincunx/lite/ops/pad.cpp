// Tensors with more, or fewer, elements at their edges.
#include <algorithm>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

struct Amount {
  int64_t before = 0;
  int64_t after = 0;
};

// The list gives (before, after) of the last dimension first.
Result<std::vector<Amount>> amounts_of(const Call& call) {
  const TensorView& x = call.tensor(0);
  const std::vector<int64_t> list = call.integers(1);
  std::vector<Amount> amounts(static_cast<size_t>(x.num_dims()));
  if (list.size() % 2 != 0 || list.size() / 2 > amounts.size()) {
    return invalid_argument("pad: expected pairs for at most " + std::to_string(x.num_dims()) + " dimensions, got " +
                            std::to_string(list.size()) + " numbers");
  }
  for (size_t i = 0; 2 * i < list.size(); ++i) amounts[amounts.size() - 1 - i] = {list[2 * i], list[2 * i + 1]};
  for (int dim = 0; dim < x.num_dims(); ++dim) {
    const Amount& amount = amounts[static_cast<size_t>(dim)];
    const int64_t size = x.size(dim) + amount.before + amount.after;
    if (call.result().num_dims() != x.num_dims() || size != call.result().size(dim)) {
      return invalid_argument("pad: " + std::to_string(amount.before) + " and " + std::to_string(amount.after) +
                              " of dimension " + std::to_string(dim) + " do not give " + call.result().to_string());
    }
  }
  return amounts;
}

Status run_constant_pad_with(const Call& call, const Number& value) {
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const std::vector<Amount> amounts, amounts_of(call));
  const int64_t integer = value.kind == Number::Kind::kFloat ? static_cast<int64_t>(value.value) : value.integer;
  QX_RETURN_IF_ERROR(fill_elements(result, value.value, integer));
  TensorView from = call.tensor(0), to = result;
  for (int dim = 0; dim < from.num_dims(); ++dim) {
    const Amount& amount = amounts[static_cast<size_t>(dim)];
    const int64_t first = std::max<int64_t>(0, -amount.before);
    const int64_t last = from.size(dim) - std::max<int64_t>(0, -amount.after);
    if (first >= last) return ok_status();
    QX_ASSIGN_OR_RETURN(from, from.slice(dim, first, last));
    const int64_t begin = std::max<int64_t>(0, amount.before);
    QX_ASSIGN_OR_RETURN(to, to.slice(dim, begin, begin + (last - first)));
  }
  return copy_elements(from, to);
}

// constant_pad_nd(x, pad, value)
Status run_constant_pad(const Call& call) { return run_constant_pad_with(call, call.number(2, 0)); }

using SourceIndex = int64_t (*)(int64_t index, int64_t size);

int64_t reflected(int64_t index, int64_t size) {
  if (index < 0) return -index;
  return index >= size ? 2 * (size - 1) - index : index;
}
int64_t replicated(int64_t index, int64_t size) { return std::clamp<int64_t>(index, 0, size - 1); }
int64_t wrapped(int64_t index, int64_t size) { return (index % size + size) % size; }

// Dimension by dimension from the outside in: index i of the result is index source(i - before) of x.
Status pad_from(const TensorView& x, const std::vector<Amount>& amounts, SourceIndex source, int dim,
                const TensorView& result) {
  while (dim < x.num_dims() && amounts[static_cast<size_t>(dim)].before == 0 &&
         amounts[static_cast<size_t>(dim)].after == 0) {
    ++dim;
  }
  if (dim == x.num_dims()) return copy_elements(x, result);
  for (int64_t i = 0; i < result.size(dim); ++i) {
    const int64_t from = source(i - amounts[static_cast<size_t>(dim)].before, x.size(dim));
    if (from < 0 || from >= x.size(dim)) {
      return invalid_argument("pad: expected less than the size of " + x.to_string() + ", got " +
                              std::to_string(amounts[static_cast<size_t>(dim)].before) + " and " +
                              std::to_string(amounts[static_cast<size_t>(dim)].after));
    }
    QX_ASSIGN_OR_RETURN(const TensorView part, x.slice(dim, from, from + 1));
    QX_ASSIGN_OR_RETURN(const TensorView target, result.slice(dim, i, i + 1));
    QX_RETURN_IF_ERROR(pad_from(part, amounts, source, dim + 1, target));
  }
  return ok_status();
}

template <SourceIndex kSource>
Status run_pad_from(const Call& call) {
  QX_ASSIGN_OR_RETURN(const std::vector<Amount> amounts, amounts_of(call));
  if (call.result().num_elements() == 0) return ok_status();
  for (size_t dim = 0; dim < amounts.size(); ++dim) {
    if (call.tensor(0).size(static_cast<int>(dim)) == 0) {
      return invalid_argument("input: nothing to pad with in " + call.tensor(0).to_string());
    }
  }
  return pad_from(call.tensor(0), amounts, kSource, 0, call.result());
}

// pad(x, pad, mode, value)
Status run_pad(const Call& call) {
  const std::string_view mode = call.text(2, "constant");
  if (mode == "constant") return run_constant_pad_with(call, call.number(3, 0));
  if (mode == "reflect") return run_pad_from<reflected>(call);
  if (mode == "replicate") return run_pad_from<replicated>(call);
  if (mode == "circular") return run_pad_from<wrapped>(call);
  return invalid_argument("mode: expected 'constant', 'reflect', 'replicate' or 'circular', got '" + std::string(mode) +
                          "'");
}

constexpr Operator kOperators[] = {
    {"aten.pad.default", "TIsg", run_pad},
    {"aten.constant_pad_nd.default", "TIg", run_constant_pad},
    {"aten.reflection_pad1d.default", "TI", run_pad_from<reflected>},
    {"aten.reflection_pad2d.default", "TI", run_pad_from<reflected>},
    {"aten.reflection_pad3d.default", "TI", run_pad_from<reflected>},
    {"aten.replication_pad1d.default", "TI", run_pad_from<replicated>},
    {"aten.replication_pad2d.default", "TI", run_pad_from<replicated>},
    {"aten.replication_pad3d.default", "TI", run_pad_from<replicated>},
    {"aten._pad_circular.default", "TI", run_pad_from<wrapped>},
};

}  // namespace

std::span<const Operator> pad_operators() { return kOperators; }

}  // namespace qx::lite
