#include "quincunx/kernels/top_k/top_k.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/kernels/top_k/selection.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Elements a task handles at least: sorting costs some twenty times as much as what else runs row by row.
constexpr int64_t kGrain = kRowLoopGrain / 8;

Status check_results(const TensorView& input, const TensorView& values, const TensorView& indices) {
  QX_RETURN_IF_ERROR(check_kernel_float("values", values));
  QX_RETURN_IF_ERROR(check_same_dtype("values", values, "input", input));
  if (indices.dtype() != DType::kInt64) return type_error("indices: expected int64, got " + indices.to_string());
  if (indices.data() == nullptr && indices.num_elements() != 0) {
    return invalid_argument("indices: null data for " + indices.to_string());
  }
  QX_RETURN_IF_ERROR(check_same_shape("indices", indices, "values", values));
  bool fits = values.num_dims() == input.num_dims() && values.size(-1) <= input.size(-1);
  for (int i = 0; fits && i + 1 < input.num_dims(); ++i) fits = values.size(i) == input.size(i);
  if (!fits) {
    return invalid_argument("values: expected the shape of input " + input.to_string() +
                            " with at most as many elements in the last dimension, got " + values.to_string());
  }
  QX_RETURN_IF_ERROR(check_output("values", values, {{"input", &input}, {"indices", &indices}}));
  return check_output("indices", indices, {{"input", &input}});
}

Status check_arguments(const TensorView& input, const TensorView& values, const TensorView& indices) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_not_scalar("input", input));
  if (input.size(-1) > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("input: expected fewer than 2^31 elements a row, got " + input.to_string());
  }
  return check_results(input, values, indices);
}

// The chosen elements as they lie in memory, bit by bit.
template <typename T>
void gather(const T* row, int64_t row_stride, const std::vector<RankedIndex>& order, T* values, int64_t stride) {
  for (size_t i = 0; i < order.size(); ++i) {
    values[static_cast<int64_t>(i) * stride] = row[index_of(order[i]) * row_stride];
  }
}

Status order_rows(const TensorView& input, bool largest_first, const TensorView& values, const TensorView& indices) {
  QX_RETURN_IF_ERROR(check_arguments(input, values, indices));
  if (values.num_elements() == 0) return ok_status();
  const RowOffsets from(input), to(values), places(indices);
  const int64_t length = from.row_length();
  const int64_t bytes = dtype_size_bytes(input.dtype());
  const bool direct = input.dtype() == DType::kFloat32 && from.row_stride() == 1;
  const bool in_place = values.data() == input.data();
  parallel_for(0, from.num_rows(), std::max<int64_t>(1, kGrain / length), [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(direct ? 0 : static_cast<size_t>(length));
    std::vector<char> copy(in_place ? static_cast<size_t>(length * bytes) : 0);
    std::vector<RankedIndex> order, scratch;
    for (int64_t r = begin; r < end; ++r) {
      const char* row = input.data_as<char>() + from.offset(r) * bytes;
      if (!direct) load_row_as_f32(input.dtype(), row, from.row_stride(), length, buffer.data());
      const float* x = direct ? reinterpret_cast<const float*>(row) : buffer.data();
      select_first({x, static_cast<size_t>(length)}, to.row_length(), largest_first, order, scratch);
      int64_t stride = from.row_stride();
      for (int64_t i = 0; in_place && i < length; ++i) {
        std::memcpy(copy.data() + i * bytes, row + i * stride * bytes, static_cast<size_t>(bytes));
      }
      if (in_place) row = copy.data(), stride = 1;
      char* out = values.data_as<char>() + to.offset(r) * bytes;
      if (bytes == 4) {
        gather(reinterpret_cast<const uint32_t*>(row), stride, order, reinterpret_cast<uint32_t*>(out),
               to.row_stride());
      } else {
        gather(reinterpret_cast<const uint16_t*>(row), stride, order, reinterpret_cast<uint16_t*>(out),
               to.row_stride());
      }
      int64_t* index = indices.data_as<int64_t>() + places.offset(r);
      for (size_t i = 0; i < order.size(); ++i) {
        index[static_cast<int64_t>(i) * places.row_stride()] = index_of(order[i]);
      }
    }
  });
  return ok_status();
}

}  // namespace

Status sort(const TensorView& input, bool descending, const TensorView& values, const TensorView& indices) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_same_shape("values", values, "input", input));
  return order_rows(input, descending, values, indices);
}

Status top_k(const TensorView& input, bool largest, const TensorView& values, const TensorView& indices) {
  return order_rows(input, largest, values, indices);
}

}  // namespace qx::kernels
