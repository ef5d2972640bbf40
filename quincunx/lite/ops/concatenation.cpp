// Several tensors to one.
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// PyTorch lets the shape [0] stand for "nothing" in a list of anything.
bool is_nothing(const TensorView& x) { return x.num_dims() == 1 && x.size(0) == 0; }

// cat(tensors, dim)
Status run_cat(const Call& call) {
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1, 0), result.num_dims()));
  int64_t begin = 0;
  for (const TensorView* x : call.tensors(0)) {
    if (is_nothing(*x)) continue;
    bool fits = x->num_dims() == result.num_dims() && result.num_dims() > 0;
    for (int i = 0; fits && i < x->num_dims(); ++i) fits = i == dim || x->size(i) == result.size(i);
    if (!fits || begin + x->size(dim) > result.size(dim)) {
      return invalid_argument("tensors: " + x->to_string() + " does not fit " + result.to_string());
    }
    QX_ASSIGN_OR_RETURN(const TensorView part, result.slice(dim, begin, begin + x->size(dim)));
    QX_RETURN_IF_ERROR(convert_elements(*x, part));
    begin += x->size(dim);
  }
  if (result.num_elements() != 0 && begin != result.size(dim)) {
    return invalid_argument("tensors: give " + std::to_string(begin) + " of the " + std::to_string(result.size(dim)) +
                            " indices that the graph declares");
  }
  return ok_status();
}

Result<std::vector<int64_t>> shape_of_cat(const Call& call, size_t) {
  std::vector<int64_t> shape;
  int64_t length = 0;
  for (const TensorView* x : call.tensors(0)) {
    if (is_nothing(*x)) continue;
    QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1, 0), x->num_dims()));
    if (x->num_dims() == 0) return invalid_argument("tensors: expected at least one dimension");
    length += x->size(dim);
    shape.assign(x->shape().begin(), x->shape().end());
    shape[static_cast<size_t>(dim)] = length;
  }
  return shape.empty() ? std::vector<int64_t>{0} : shape;
}

// stack(tensors, dim)
Status run_stack(const Call& call) {
  const TensorView& result = call.result();
  const std::vector<const TensorView*> tensors = call.tensors(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1, 0), result.num_dims()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    QX_ASSIGN_OR_RETURN(const TensorView part, result.select(dim, static_cast<int64_t>(i)));
    if (part.num_dims() != tensors[i]->num_dims()) {
      return invalid_argument("tensors: " + tensors[i]->to_string() + " does not fit " + result.to_string());
    }
    QX_RETURN_IF_ERROR(convert_elements(*tensors[i], part));
  }
  return ok_status();
}

// A view of the result whose dimension `dim` is cut into [outer, inner].
Result<TensorView> cut(const TensorView& x, int dim, int64_t inner) {
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  const auto at = static_cast<size_t>(dim);
  shape[at] = inner == 0 ? 0 : shape[at] / inner;
  shape.insert(shape.begin() + dim + 1, inner);
  strides.insert(strides.begin() + dim, strides[at] * inner);
  return TensorView::strided(x.data(), x.dtype(), shape, strides);
}

// repeat(x, repeats): x is written to each of its places, one dimension's copies after another.
Status run_repeat(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  const std::vector<int64_t> repeats = call.integers(1);
  if (static_cast<int>(repeats.size()) < x.num_dims() || static_cast<int>(repeats.size()) != result.num_dims()) {
    return invalid_argument("repeats: expected " + std::to_string(result.num_dims()) + " numbers");
  }
  if (result.num_elements() == 0) return ok_status();
  int64_t copies = 1;
  const int missing = static_cast<int>(repeats.size()) - x.num_dims();
  for (int dim = 0; dim < result.num_dims(); ++dim) {
    const int64_t size = dim < missing ? 1 : x.size(dim - missing);
    const int64_t count = repeats[static_cast<size_t>(dim)];
    if (size == 0 || result.size(dim) % size != 0 || result.size(dim) / size != count) {
      return invalid_argument("repeats: " + std::to_string(count) + " of dimension " + std::to_string(dim) +
                              " does not give " + result.to_string());
    }
    copies *= count;
  }
  for (int64_t copy = 0; copy < copies; ++copy) {
    TensorView part = result;
    int64_t rest = copy;
    for (int dim = result.num_dims() - 1; dim >= 0; --dim) {
      const int64_t size = dim < missing ? 1 : x.size(dim - missing);
      const int64_t index = rest % repeats[static_cast<size_t>(dim)];
      rest /= repeats[static_cast<size_t>(dim)];
      QX_ASSIGN_OR_RETURN(part, part.slice(dim, index * size, (index + 1) * size));
    }
    QX_RETURN_IF_ERROR(copy_elements(x, part));
  }
  return ok_status();
}

// repeat_interleave(x, repeats, dim): each index of `dim` several times in a row.
Status run_repeat_interleave(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  if (!call.has(2)) return unimplemented("dim: expected an integer, got None");
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(2), result.num_dims()));
  if (result.num_elements() == 0) return ok_status();
  QX_ASSIGN_OR_RETURN(const TensorView parts, cut(result, dim, call.integer(1)));
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  shape.insert(shape.begin() + dim + 1, 1);
  strides.insert(strides.begin() + dim + 1, 0);
  QX_ASSIGN_OR_RETURN(const TensorView source, TensorView::strided(x.data(), x.dtype(), shape, strides));
  return copy_elements(source, parts);
}

constexpr Operator kOperators[] = {
    {.name = "aten.cat.default", .signature = "Lj", .run = run_cat, .shape = shape_of_cat},
    {.name = "aten.concat.default", .signature = "Lj", .run = run_cat, .shape = shape_of_cat},
    {.name = "aten.stack.default", .signature = "Lj", .run = run_stack},
    {.name = "aten.repeat.default", .signature = "TI", .run = run_repeat},
    {.name = "aten.repeat_interleave.self_int", .signature = "Tijj", .run = run_repeat_interleave},
};

}  // namespace

std::span<const Operator> concatenation_operators() { return kOperators; }

}  // namespace qx::lite
