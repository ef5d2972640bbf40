// Elements chosen, or overwritten, by index.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// The integers of a tensor in row-major order.
Result<std::vector<int64_t>> integers_of(const char* name, const TensorView& tensor) {
  if (compute_type(tensor.dtype()) != ComputeType::kInteger || tensor.dtype() == DType::kBool) {
    return type_error(std::string(name) + ": expected integers, got " + tensor.to_string());
  }
  std::vector<int64_t> values(static_cast<size_t>(tensor.num_elements()));
  QX_ASSIGN_OR_RETURN(const TensorView list, TensorView::contiguous(values.data(), DType::kInt64, tensor.shape()));
  QX_RETURN_IF_ERROR(convert_elements(tensor, list));
  return values;
}

Status normalize_index(int64_t& index, int64_t size) {
  if (index < -size || index >= size) {
    return invalid_argument("index: expected " + std::to_string(-size) + " to " + std::to_string(size - 1) + ", got " +
                            std::to_string(index));
  }
  index += index < 0 ? size : 0;
  return ok_status();
}

// index_select(x, dim, index)
Status run_index_select(const Call& call) {
  const TensorView& x = call.tensor(0);
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  if (x.num_dims() == 0) return copy_elements(x, call.result());
  QX_ASSIGN_OR_RETURN(std::vector<int64_t> indices, integers_of("index", call.tensor(2)));
  for (size_t i = 0; i < indices.size(); ++i) {
    QX_RETURN_IF_ERROR(normalize_index(indices[i], x.size(dim)));
    QX_ASSIGN_OR_RETURN(const TensorView from, x.select(dim, indices[i]));
    QX_ASSIGN_OR_RETURN(const TensorView to, call.result().select(dim, static_cast<int64_t>(i)));
    QX_RETURN_IF_ERROR(copy_elements(from, to));
  }
  return ok_status();
}

// Offset of element `place` of the row-major order of `shape` under `strides`.
int64_t offset_of(int64_t place, std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t offset = 0;
  for (size_t dim = shape.size(); dim-- > 0;) {
    offset += place % shape[dim] * strides[dim];
    place /= shape[dim];
  }
  return offset;
}

// gather(x, dim, index): result[.., i, ..] = x[.., index[.., i, ..], ..].
Status run_gather(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& index = call.tensor(2);
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  QX_ASSIGN_OR_RETURN(std::vector<int64_t> indices, integers_of("index", index));
  if (index.num_dims() != x.num_dims() || !std::ranges::equal(result.shape(), index.shape())) {
    return invalid_argument("index: expected " + std::to_string(x.num_dims()) + " dimensions, got " +
                            index.to_string());
  }
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  for (int i = 0; i < x.num_dims(); ++i) {
    if (i == dim) {
      strides[static_cast<size_t>(i)] = 0;
    } else if (index.size(i) > x.size(i)) {
      return invalid_argument("index: " + index.to_string() + " is larger than " + x.to_string());
    }
  }
  const auto bytes = static_cast<size_t>(dtype_size_bytes(x.dtype()));
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    if (x.num_dims() > 0) QX_RETURN_IF_ERROR(normalize_index(indices[i], x.size(dim)));
    const int64_t step = x.num_dims() > 0 ? indices[i] * x.stride(dim) : 0;
    const int64_t from = offset_of(place, index.shape(), strides) + step;
    const int64_t to = offset_of(place, index.shape(), result.strides());
    std::memcpy(result.data_as<char>() + to * static_cast<int64_t>(bytes),
                x.data_as<char>() + from * static_cast<int64_t>(bytes), bytes);
  }
  return ok_status();
}

// Where indexing by tensors reads from: the broadcast shape of the indices, and for each place in it an offset.
struct Places {
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  std::vector<int> kept;  // dimensions without an index
  int first = 0;          // where the places' dimensions stand in the result
};

Status broadcast(std::vector<int64_t>& shape, const TensorView& index) {
  while (static_cast<int>(shape.size()) < index.num_dims()) shape.insert(shape.begin(), 1);
  for (int i = 0; i < index.num_dims(); ++i) {
    int64_t& size = shape[shape.size() - static_cast<size_t>(index.num_dims() - i)];
    if (size != index.size(i) && size != 1 && index.size(i) != 1) {
      return invalid_argument("indices: " + index.to_string() + " does not broadcast with the others");
    }
    if (size == 1) size = index.size(i);
  }
  return ok_status();
}

Result<Places> places_of(const TensorView& x, const std::vector<const TensorView*>& indices) {
  Places places;
  std::vector<int> indexed;
  if (static_cast<int>(indices.size()) > x.num_dims()) return invalid_argument("indices: more than dimensions");
  for (int dim = 0; dim < x.num_dims(); ++dim) {
    const bool used = dim < static_cast<int>(indices.size()) && indices[static_cast<size_t>(dim)] != nullptr;
    (used ? indexed : places.kept).push_back(dim);
    if (used) QX_RETURN_IF_ERROR(broadcast(places.shape, *indices[static_cast<size_t>(dim)]));
  }
  if (indexed.empty()) return invalid_argument("indices: expected at least one");
  // Indices side by side keep their place, others come first.
  const bool adjacent = indexed.back() - indexed.front() + 1 == static_cast<int>(indexed.size());
  places.first = adjacent ? indexed.front() : 0;
  int64_t count = 1;
  for (const int64_t size : places.shape) count *= size;
  places.offsets.assign(static_cast<size_t>(count), 0);
  for (const int dim : indexed) {
    const TensorView& index = *indices[static_cast<size_t>(dim)];
    QX_ASSIGN_OR_RETURN(std::vector<int64_t> values, integers_of("indices", index));
    for (int64_t& value : values) QX_RETURN_IF_ERROR(normalize_index(value, x.size(dim)));
    std::vector<int64_t> strides(places.shape.size(), 0);
    int64_t step = 1;
    for (int i = index.num_dims() - 1; i >= 0; --i) {
      strides[strides.size() - static_cast<size_t>(index.num_dims() - i)] = index.size(i) == 1 ? 0 : step;
      step *= index.size(i);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = values[static_cast<size_t>(offset_of(i, places.shape, strides))];
      places.offsets[static_cast<size_t>(i)] += value * x.stride(dim);
    }
  }
  return places;
}

// The kept dimensions of `x` at offset `offset`.
Result<TensorView> kept_part(const TensorView& x, const Places& places, int64_t offset) {
  std::vector<int64_t> shape, strides;
  for (const int dim : places.kept) {
    shape.push_back(x.size(dim));
    strides.push_back(x.stride(dim));
  }
  char* data = x.data_as<char>() + offset * dtype_size_bytes(x.dtype());
  return TensorView::strided(data, x.dtype(), shape, strides);
}

// The part of a tensor of the result's shape that belongs to place `index`; the tensor may have to be broadcast.
Result<TensorView> placed_part(const TensorView& result, const Places& places, int64_t index) {
  const auto first = static_cast<size_t>(places.first);
  const size_t count = places.shape.size();
  const std::span<const int64_t> strides = result.strides();
  const int64_t offset = offset_of(index, places.shape, strides.subspan(first, count));
  std::vector<int64_t> shape, steps;
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    if (dim >= first && dim < first + count) continue;
    shape.push_back(result.size(static_cast<int>(dim)));
    steps.push_back(strides[dim]);
  }
  char* data = result.data_as<char>() + offset * dtype_size_bytes(result.dtype());
  return TensorView::strided(data, result.dtype(), shape, steps);
}

// index(x, indices): x[index0, :, index2 ...]
Status run_index(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const Places places, places_of(x, call.tensors(1)));
  const bool fits = places.kept.size() + places.shape.size() == static_cast<size_t>(result.num_dims());
  if (!fits || !std::ranges::equal(result.shape().subspan(static_cast<size_t>(places.first), places.shape.size()),
                                   places.shape)) {
    return invalid_argument("indices: do not give " + result.to_string());
  }
  for (size_t i = 0; i < places.offsets.size(); ++i) {
    QX_ASSIGN_OR_RETURN(const TensorView from, kept_part(x, places, places.offsets[i]));
    QX_ASSIGN_OR_RETURN(const TensorView to, placed_part(result, places, static_cast<int64_t>(i)));
    QX_RETURN_IF_ERROR(copy_elements(from, to));
  }
  return ok_status();
}

// A view of `values` broadcast to `shape`.
Result<TensorView> broadcast_to(const TensorView& values, const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 0);
  const int missing = static_cast<int>(shape.size()) - values.num_dims();
  for (int i = 0; i < values.num_dims(); ++i) {
    if (missing < 0 || (values.size(i) != 1 && values.size(i) != shape[static_cast<size_t>(i + missing)])) {
      return invalid_argument("values: " + values.to_string() + " does not broadcast to the places");
    }
    strides[static_cast<size_t>(i + missing)] = values.size(i) == 1 ? 0 : values.stride(i);
  }
  return TensorView::strided(values.data(), values.dtype(), shape, strides);
}

// index_put(x, indices, values, accumulate)
Status run_index_put(const Call& call) {
  const TensorView& result = call.result();
  if (call.flag(3)) return unimplemented("accumulate: expected False, got True");
  QX_ASSIGN_OR_RETURN(const Places places, places_of(result, call.tensors(1)));
  if (result.data() != call.tensor(0).data()) QX_RETURN_IF_ERROR(copy_elements(call.tensor(0), result));
  std::vector<int64_t> shape;
  for (const int dim : places.kept) shape.push_back(result.size(dim));
  shape.insert(shape.begin() + std::min<int>(places.first, static_cast<int>(shape.size())), places.shape.begin(),
               places.shape.end());
  QX_ASSIGN_OR_RETURN(const TensorView values, broadcast_to(call.tensor(2), shape));
  for (size_t i = 0; i < places.offsets.size(); ++i) {
    QX_ASSIGN_OR_RETURN(const TensorView to, kept_part(result, places, places.offsets[i]));
    QX_ASSIGN_OR_RETURN(const TensorView from, placed_part(values, places, static_cast<int64_t>(i)));
    QX_RETURN_IF_ERROR(convert_elements(from, to));
  }
  return ok_status();
}

// slice_scatter(x, source, dim, start, end, step)
Status run_slice_scatter(const Call& call) {
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(2, 0), result.num_dims()));
  if (result.num_dims() == 0) return invalid_argument("slice_scatter: expected at least one dimension");
  const int64_t size = result.size(dim);
  const auto clamped = [size](int64_t index) { return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size); };
  const int64_t begin = clamped(call.integer(3, 0));
  const int64_t end = std::max(begin, clamped(call.integer(4, INT64_MAX)));
  if (result.data() != call.tensor(0).data()) QX_RETURN_IF_ERROR(copy_elements(call.tensor(0), result));
  QX_ASSIGN_OR_RETURN(const TensorView part, result.slice(dim, begin, end, call.integer(5, 1)));
  return convert_elements(call.tensor(1), part);
}

// select_scatter(x, source, dim, index)
Status run_select_scatter(const Call& call) {
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(2), result.num_dims()));
  if (result.num_dims() == 0) return invalid_argument("select_scatter: expected at least one dimension");
  int64_t index = call.integer(3);
  QX_RETURN_IF_ERROR(normalize_index(index, result.size(dim)));
  if (result.data() != call.tensor(0).data()) QX_RETURN_IF_ERROR(copy_elements(call.tensor(0), result));
  QX_ASSIGN_OR_RETURN(const TensorView part, result.select(dim, index));
  return convert_elements(call.tensor(1), part);
}

// A view whose chosen dimensions run backwards.
Result<std::optional<TensorView>> view_flip(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  int64_t offset = 0;
  for (const int64_t chosen : call.integers(1)) {
    QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(chosen, x.num_dims()));
    if (x.num_dims() == 0 || x.num_elements() == 0) return std::optional(x);
    offset += (x.size(dim) - 1) * x.stride(dim);
    strides[static_cast<size_t>(dim)] = -x.stride(dim);
  }
  char* data = x.data_as<char>() + offset * dtype_size_bytes(x.dtype());
  QX_ASSIGN_OR_RETURN(TensorView view, TensorView::strided(data, x.dtype(), x.shape(), strides));
  return std::optional(view);
}

// roll(x, shifts, dims): one dimension after another, each by two copies.
Status run_roll(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  const std::vector<int64_t> shifts = call.integers(1), dims = call.integers(2);
  if (shifts.size() != 1 || dims.size() != 1) return unimplemented("shifts and dims: expected one of each");
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(dims[0], x.num_dims()));
  if (x.num_elements() == 0 || x.num_dims() == 0) return copy_elements(x, result);
  const int64_t size = x.size(dim);
  const int64_t shift = (shifts[0] % size + size) % size;
  QX_ASSIGN_OR_RETURN(const TensorView tail, x.slice(dim, size - shift, size));
  QX_ASSIGN_OR_RETURN(const TensorView head, x.slice(dim, 0, size - shift));
  QX_ASSIGN_OR_RETURN(const TensorView begin, result.slice(dim, 0, shift));
  QX_ASSIGN_OR_RETURN(const TensorView end, result.slice(dim, shift, size));
  QX_RETURN_IF_ERROR(copy_elements(tail, begin));
  return copy_elements(head, end);
}

Status run_copy(const Call& call) { return copy_elements(call.tensor(0), call.result()); }

constexpr Operator kOperators[] = {
    {.name = "aten.index_select.default", .signature = "TiT", .run = run_index_select},
    {.name = "aten.gather.default", .signature = "TiTb", .run = run_gather},
    {.name = "aten.index.Tensor", .signature = "TK", .run = run_index},
    {.name = "aten.index_put.default", .signature = "TKTb", .run = run_index_put, .updates = true},
    {.name = "aten.slice_scatter.default", .signature = "TTjjjj", .run = run_slice_scatter, .updates = true},
    {.name = "aten.select_scatter.default", .signature = "TTii", .run = run_select_scatter, .updates = true},
    {.name = "aten.flip.default", .signature = "TI", .run = run_copy, .view = view_flip},
    {.name = "aten.roll.default", .signature = "TIJ", .run = run_roll},
};

}  // namespace

std::span<const Operator> index_operators() { return kOperators; }

}  // namespace qx::lite
