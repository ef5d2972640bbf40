// Operators whose result is the argument's own memory, seen differently. Where strides do not allow it the elements are
// copied; only the family of reshape ever has to.
#include <algorithm>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/reshape.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

using View = std::optional<TensorView>;

Result<View> strided(const TensorView& base, int64_t offset, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& strides) {
  char* data = base.data_as<char>() + offset * dtype_size_bytes(base.dtype());
  QX_ASSIGN_OR_RETURN(TensorView view, TensorView::strided(data, base.dtype(), shape, strides));
  return View(view);
}

Result<View> view_same(const Call& call, size_t) { return View(call.tensor(0)); }

// dropout(x, p, train): the identity at inference.
Result<View> view_dropout(const Call& call, size_t) {
  if (call.flag(2, true) && call.real(1) != 0) {
    return unimplemented("train: expected False, got True: the model must be in evaluation mode when it is exported");
  }
  return View(call.tensor(0));
}

Result<View> view_reshape(const Call& call, size_t) { return reshaped(call.tensor(0), call.integers(1)); }

Result<View> view_like(const Call& call, size_t) {
  const std::span<const int64_t> shape = call.tensor(1).shape();
  return reshaped(call.tensor(0), {shape.begin(), shape.end()});
}

// flatten(x, start_dim, end_dim)
Result<View> view_flatten(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int first, normalized_dim(call.integer(1, 0), x.num_dims()));
  QX_ASSIGN_OR_RETURN(const int last, normalized_dim(call.integer(2, -1), x.num_dims()));
  if (last < first) return invalid_argument("end_dim: expected at least start_dim, got " + std::to_string(last));
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  if (shape.empty()) shape = {1};
  int64_t length = 1;
  for (int i = first; i <= last; ++i) length *= shape[static_cast<size_t>(i)];
  shape.erase(shape.begin() + first, shape.begin() + last + 1);
  shape.insert(shape.begin() + first, length);
  return reshaped(x, shape);
}

// unflatten(x, dim, sizes)
Result<View> view_unflatten(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  std::vector<int64_t> sizes = call.integers(2);
  int64_t known = 1;
  for (const int64_t size : sizes) known *= size == -1 ? 1 : size;
  for (int64_t& size : sizes) {
    if (size == -1 && known > 0) size = x.size(dim) / known;
  }
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
  return reshaped(x, shape);
}

Result<View> permuted(const TensorView& x, const std::vector<int64_t>& order) {
  std::vector<int64_t> shape, strides;
  std::vector<bool> used(static_cast<size_t>(x.num_dims()));
  for (const int64_t dim : order) {
    QX_ASSIGN_OR_RETURN(const int index, normalized_dim(dim, x.num_dims()));
    if (x.num_dims() == 0 || used[static_cast<size_t>(index)]) return invalid_argument("dims: not a permutation");
    used[static_cast<size_t>(index)] = true;
    shape.push_back(x.size(index));
    strides.push_back(x.stride(index));
  }
  if (static_cast<int>(order.size()) != x.num_dims()) {
    return invalid_argument("dims: expected " + std::to_string(x.num_dims()) + " dimensions, got " +
                            std::to_string(order.size()));
  }
  return strided(x, 0, shape, strides);
}

Result<View> view_permute(const Call& call, size_t) { return permuted(call.tensor(0), call.integers(1)); }

Result<View> swapped(const TensorView& x, int64_t first, int64_t second) {
  QX_ASSIGN_OR_RETURN(const int left, normalized_dim(first, x.num_dims()));
  QX_ASSIGN_OR_RETURN(const int right, normalized_dim(second, x.num_dims()));
  if (x.num_dims() == 0) return View(x);
  QX_ASSIGN_OR_RETURN(TensorView view, x.transpose(left, right));
  return View(view);
}

Result<View> view_transpose(const Call& call, size_t) {
  return swapped(call.tensor(0), call.integer(1), call.integer(2));
}

// t, numpy_T, mT: all dimensions in reverse, or the last two.
Result<View> view_reversed(const Call& call, size_t) {
  std::vector<int64_t> order;
  for (int i = call.tensor(0).num_dims(); i-- > 0;) order.push_back(i);
  return permuted(call.tensor(0), order);
}
Result<View> view_matrix_transpose(const Call& call, size_t) { return swapped(call.tensor(0), -2, -1); }

// movedim(x, source, destination)
Result<View> view_movedim(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  const std::vector<int64_t> from = call.integers(1), to = call.integers(2);
  std::vector<int64_t> order(static_cast<size_t>(x.num_dims()), -1);
  std::vector<bool> moved(order.size());
  if (from.size() != to.size()) return invalid_argument("source and destination: expected equal lengths");
  for (size_t i = 0; i < from.size(); ++i) {
    QX_ASSIGN_OR_RETURN(const int source, normalized_dim(from[i], x.num_dims()));
    QX_ASSIGN_OR_RETURN(const int destination, normalized_dim(to[i], x.num_dims()));
    if (order.empty()) return View(x);
    order[static_cast<size_t>(destination)] = source;
    moved[static_cast<size_t>(source)] = true;
  }
  size_t next = 0;
  for (int64_t& dim : order) {
    if (dim != -1) continue;
    while (next < moved.size() && moved[next]) ++next;
    dim = static_cast<int64_t>(next++);
  }
  return permuted(x, order);
}

Result<View> expanded(const TensorView& x, const std::vector<int64_t>& sizes) {
  const int missing = static_cast<int>(sizes.size()) - x.num_dims();
  if (missing < 0) return invalid_argument("size: expected at least " + std::to_string(x.num_dims()) + " dimensions");
  std::vector<int64_t> shape, strides;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)];
    const int64_t own = i < missing ? 1 : x.size(i - missing);
    if (size != -1 && size != own && own != 1) {
      return invalid_argument("size[" + std::to_string(i) + "]: expected " + std::to_string(own) + ", got " +
                              std::to_string(size));
    }
    const bool keeps = size == -1 || size == own;
    shape.push_back(keeps ? own : size);
    strides.push_back(i < missing || !keeps ? 0 : x.stride(i - missing));
  }
  return strided(x, 0, shape, strides);
}

Result<View> view_expand(const Call& call, size_t) { return expanded(call.tensor(0), call.integers(1)); }
Result<View> view_expand_as(const Call& call, size_t) {
  const std::span<const int64_t> shape = call.tensor(1).shape();
  return expanded(call.tensor(0), {shape.begin(), shape.end()});
}

// squeeze(x), squeeze(x, dim), squeeze(x, dims)
Result<View> view_squeeze(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  std::vector<bool> chosen(static_cast<size_t>(x.num_dims()), !call.has(1));
  for (const int64_t dim : call.integers(1)) {
    QX_ASSIGN_OR_RETURN(const int index, normalized_dim(dim, x.num_dims()));
    if (x.num_dims() > 0) chosen[static_cast<size_t>(index)] = true;
  }
  std::vector<int64_t> shape, strides;
  for (int i = 0; i < x.num_dims(); ++i) {
    if (chosen[static_cast<size_t>(i)] && x.size(i) == 1) continue;
    shape.push_back(x.size(i));
    strides.push_back(x.stride(i));
  }
  return strided(x, 0, shape, strides);
}

Result<View> view_unsqueeze(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims() + 1));
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  shape.insert(shape.begin() + dim, 1);
  strides.insert(strides.begin() + dim, 1);
  return strided(x, 0, shape, strides);
}

int64_t clamped_index(int64_t index, int64_t size) {
  return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
}

// slice(x, dim, start, end, step)
Result<View> view_slice(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1, 0), x.num_dims()));
  if (x.num_dims() == 0) return invalid_argument("slice: expected at least one dimension");
  const int64_t begin = clamped_index(call.integer(2, 0), x.size(dim));
  const int64_t end = std::max(begin, clamped_index(call.integer(3, INT64_MAX), x.size(dim)));
  QX_ASSIGN_OR_RETURN(TensorView view, x.slice(dim, begin, end, call.integer(4, 1)));
  return View(view);
}

// narrow(x, dim, start, length)
Result<View> view_narrow(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  const int64_t begin = clamped_index(call.integer(2), x.num_dims() == 0 ? 0 : x.size(dim));
  const int64_t length = call.integer(3);
  if (x.num_dims() == 0 || length < 0 || length > x.size(dim) - begin) {
    return invalid_argument("length: " + std::to_string(length) + " from " + std::to_string(begin) +
                            " on exceeds dimension " + std::to_string(dim) + " of " + x.to_string());
  }
  QX_ASSIGN_OR_RETURN(TensorView view, x.slice(dim, begin, begin + length));
  return View(view);
}

// select(x, dim, index)
Result<View> view_select(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  const int64_t index = call.integer(2);
  QX_ASSIGN_OR_RETURN(TensorView view, x.select(dim, index < 0 && x.num_dims() > 0 ? index + x.size(dim) : index));
  return View(view);
}

// Part `result` of x cut along `dim` at the sums of `lengths`.
Result<View> part(const TensorView& x, int64_t dim, const std::vector<int64_t>& lengths, size_t result) {
  QX_ASSIGN_OR_RETURN(const int index, normalized_dim(dim, x.num_dims()));
  if (result >= lengths.size()) {
    return invalid_argument("expected at most " + std::to_string(lengths.size()) + " results");
  }
  int64_t begin = 0;
  for (size_t i = 0; i < result; ++i) begin += lengths[i];
  QX_ASSIGN_OR_RETURN(TensorView view, x.slice(index, begin, begin + lengths[result]));
  return View(view);
}

std::vector<int64_t> equal_lengths(int64_t total, int64_t length) {
  std::vector<int64_t> lengths;
  for (int64_t first = 0; first < total; first += length) lengths.push_back(std::min(length, total - first));
  if (lengths.empty()) lengths.push_back(0);
  return lengths;
}

// split(x, split_size, dim)
Result<View> view_split(const Call& call, size_t result) {
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(2, 0), call.tensor(0).num_dims()));
  const int64_t length = call.integer(1);
  if (length < 1) return invalid_argument("split_size: expected at least 1, got " + std::to_string(length));
  return part(call.tensor(0), dim, equal_lengths(call.tensor(0).size(dim), length), result);
}

Result<View> view_split_with_sizes(const Call& call, size_t result) {
  return part(call.tensor(0), call.integer(2, 0), call.integers(1), result);
}

// chunk(x, chunks, dim)
Result<View> view_chunk(const Call& call, size_t result) {
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(2, 0), call.tensor(0).num_dims()));
  const int64_t chunks = call.integer(1);
  if (chunks < 1) return invalid_argument("chunks: expected at least 1, got " + std::to_string(chunks));
  const int64_t total = call.tensor(0).size(dim);
  return part(call.tensor(0), dim, equal_lengths(total, std::max<int64_t>(1, (total + chunks - 1) / chunks)), result);
}

// unbind(x, dim)
Result<View> view_unbind(const Call& call, size_t result) {
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1, 0), call.tensor(0).num_dims()));
  QX_ASSIGN_OR_RETURN(TensorView view, call.tensor(0).select(dim, static_cast<int64_t>(result)));
  return View(view);
}

// diagonal(x, offset, dim1, dim2)
Result<View> view_diagonal(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int row, normalized_dim(call.integer(2, 0), x.num_dims()));
  QX_ASSIGN_OR_RETURN(const int column, normalized_dim(call.integer(3, 1), x.num_dims()));
  if (row == column || x.num_dims() < 2) return invalid_argument("dim1 and dim2: expected two dimensions");
  const int64_t offset = std::clamp(call.integer(1, 0), -x.size(row), x.size(column));
  const int64_t down = std::max<int64_t>(0, -offset), right = std::max<int64_t>(0, offset);
  std::vector<int64_t> shape, strides;
  for (int i = 0; i < x.num_dims(); ++i) {
    if (i == row || i == column) continue;
    shape.push_back(x.size(i));
    strides.push_back(x.stride(i));
  }
  shape.push_back(std::max<int64_t>(0, std::min(x.size(row) - down, x.size(column) - right)));
  strides.push_back(x.stride(row) + x.stride(column));
  return strided(x, shape.back() == 0 ? 0 : down * x.stride(row) + right * x.stride(column), shape, strides);
}

// unfold(x, dim, size, step): windows, the new dimension last.
Result<View> view_unfold(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  const int64_t size = call.integer(2), step = call.integer(3);
  if (x.num_dims() == 0 || size < 0 || size > x.size(dim) || step < 1) {
    return invalid_argument("unfold: size " + std::to_string(size) + " and step " + std::to_string(step) +
                            " do not fit " + x.to_string());
  }
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  shape[static_cast<size_t>(dim)] = (x.size(dim) - size) / step + 1;
  strides[static_cast<size_t>(dim)] = step * x.stride(dim);
  shape.push_back(size);
  strides.push_back(x.stride(dim));
  return strided(x, 0, shape, strides);
}

// What could not be a view: the same elements in row-major order.
Status copy_in_order(const Call& call) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const TensorView result, call.result().reshape(x.shape()));
  return copy_elements(x, result);
}

#define QX_VIEW(name, signature, function) {name, signature, copy_in_order, function}
constexpr Operator kOperators[] = {
    QX_VIEW("aten.view.default", "TI", view_reshape),
    QX_VIEW("aten.reshape.default", "TI", view_reshape),
    QX_VIEW("aten._unsafe_view.default", "TI", view_reshape),
    QX_VIEW("aten._reshape_copy.default", "TI", view_reshape),
    QX_VIEW("aten.view_copy.default", "TI", view_reshape),
    QX_VIEW("aten.view_as.default", "TT", view_like),
    QX_VIEW("aten.reshape_as.default", "TT", view_like),
    QX_VIEW("aten.flatten.using_ints", "Tjj", view_flatten),
    QX_VIEW("aten.unflatten.int", "TiI", view_unflatten),
    QX_VIEW("aten.permute.default", "TI", view_permute),
    QX_VIEW("aten.permute_copy.default", "TI", view_permute),
    QX_VIEW("aten.transpose.int", "Tii", view_transpose),
    QX_VIEW("aten.transpose_copy.int", "Tii", view_transpose),
    QX_VIEW("aten.swapaxes.default", "Tii", view_transpose),
    QX_VIEW("aten.swapdims.default", "Tii", view_transpose),
    QX_VIEW("aten.t.default", "T", view_reversed),
    QX_VIEW("aten.t_copy.default", "T", view_reversed),
    QX_VIEW("aten.numpy_T.default", "T", view_reversed),
    QX_VIEW("aten.mT.default", "T", view_matrix_transpose),
    QX_VIEW("aten.adjoint.default", "T", view_matrix_transpose),
    QX_VIEW("aten.movedim.int", "Tii", view_movedim),
    QX_VIEW("aten.movedim.intlist", "TII", view_movedim),
    QX_VIEW("aten.expand.default", "TI*", view_expand),
    QX_VIEW("aten.expand_copy.default", "TI*", view_expand),
    QX_VIEW("aten.broadcast_to.default", "TI", view_expand),
    QX_VIEW("aten.expand_as.default", "TT", view_expand_as),
    QX_VIEW("aten.squeeze.default", "T", view_squeeze),
    QX_VIEW("aten.squeeze.dim", "Ti", view_squeeze),
    QX_VIEW("aten.squeeze.dims", "TI", view_squeeze),
    QX_VIEW("aten.squeeze_copy.dims", "TI", view_squeeze),
    QX_VIEW("aten.unsqueeze.default", "Ti", view_unsqueeze),
    QX_VIEW("aten.unsqueeze_copy.default", "Ti", view_unsqueeze),
    QX_VIEW("aten.slice.Tensor", "Tjjjj", view_slice),
    QX_VIEW("aten.slice_copy.Tensor", "Tjjjj", view_slice),
    QX_VIEW("aten.narrow.default", "Tiii", view_narrow),
    QX_VIEW("aten.narrow_copy.default", "Tiii", view_narrow),
    QX_VIEW("aten.select.int", "Tii", view_select),
    QX_VIEW("aten.select_copy.int", "Tii", view_select),
    QX_VIEW("aten.split.Tensor", "Tij", view_split),
    QX_VIEW("aten.split_copy.Tensor", "Tij", view_split),
    QX_VIEW("aten.split.sizes", "TIj", view_split_with_sizes),
    QX_VIEW("aten.split_with_sizes.default", "TIj", view_split_with_sizes),
    QX_VIEW("aten.split_with_sizes_copy.default", "TIj", view_split_with_sizes),
    QX_VIEW("aten.chunk.default", "Tij", view_chunk),
    QX_VIEW("aten.unbind.int", "Tj", view_unbind),
    QX_VIEW("aten.diagonal.default", "Tjjj", view_diagonal),
    QX_VIEW("aten.unfold.default", "Tiii", view_unfold),
    QX_VIEW("aten.unfold_copy.default", "Tiii", view_unfold),
    QX_VIEW("aten.alias.default", "T", view_same),
    QX_VIEW("aten.detach.default", "T", view_same),
    QX_VIEW("aten.detach_.default", "T", view_same),
    QX_VIEW("aten.lift_fresh_copy.default", "T", view_same),
    QX_VIEW("aten.dropout.default", "Tgb", view_dropout),
};
#undef QX_VIEW

}  // namespace

std::span<const Operator> view_operators() { return kOperators; }

}  // namespace qx::lite
