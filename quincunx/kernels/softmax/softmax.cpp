#include "quincunx/kernels/softmax/softmax.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/dense_rows.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/softmax/softmax_kernel.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// A panel has as many columns as leave it in L2, 512 KiB, but at least four cache lines a row and at most 1,024
// columns, whose maxima and sums stay in L1.
constexpr int64_t kPanelElements = 131072;
int64_t columns_of_panel(int64_t rows) {
  return std::clamp<int64_t>(kPanelElements / std::max<int64_t>(rows, 1) / 64 * 64, 64, 1024);
}

// A narrower innermost dimension leaves most lanes of a vector empty: rows are gathered then.
constexpr int64_t kLeastColumns = 8;

Status check_arguments(const TensorView& input, int dim, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_not_scalar("input", input));
  if (dim < -input.num_dims() || dim >= input.num_dims()) {
    return invalid_argument("dim: expected " + std::to_string(-input.num_dims()) + " to " +
                            std::to_string(input.num_dims() - 1) + ", got " + std::to_string(dim));
  }
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  return check_output("output", output, {{"input", &input}});
}

// A dimension other than `dim` along which both tensors are dense.
std::optional<int> column_dim(const TensorView& input, int dim, const TensorView& output) {
  for (int i = input.num_dims() - 1; i >= 0; --i) {
    if (i != dim && input.size(i) >= kLeastColumns && input.stride(i) == 1 && output.stride(i) == 1) return i;
  }
  return std::nullopt;
}

// `view` without `dim`, the columns last: each row of it is the first row of a matrix of columns.
TensorView first_rows(const TensorView& view, int dim, int columns) {
  std::vector<int64_t> shape, strides;
  for (int i = 0; i < view.num_dims(); ++i) {
    if (i == dim || i == columns) continue;
    shape.push_back(view.size(i));
    strides.push_back(view.stride(i));
  }
  shape.push_back(view.size(columns));
  strides.push_back(view.stride(columns));
  return TensorView::strided(view.data(), view.dtype(), shape, strides).value();
}

// Whether the terms of a sum need memory beside the result's, which takes them only as f32 and only in the caches.
bool needs_terms(bool log, DType dtype, bool stream) { return !log && (dtype != DType::kFloat32 || stream); }

void softmax_columns(bool log, const TensorView& input, int dim, int columns, const TensorView& output) {
  const TensorView first_outputs = first_rows(output, dim, columns);
  const RowOffsets from(first_rows(input, dim, columns));
  const RowOffsets to(first_outputs);
  const int64_t rows = input.size(dim);
  const int64_t most = std::min(columns_of_panel(rows), from.row_length());
  const int64_t panels = (from.row_length() + most - 1) / most;
  const int64_t bytes = dtype_size_bytes(input.dtype());
  const auto transposed = output.transpose(columns, -1);
  const bool stream = transposed.ok() && writes_past_caches(transposed.value(), input.data() == output.data());
  const bool has_terms = needs_terms(log, input.dtype(), stream);
  // The next panel lies beside this one or, in a contiguous tensor, behind it.
  const int64_t to_next_panel = (panels > 1 ? most : rows * input.stride(dim)) * bytes;
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / (rows * most));
  parallel_for(0, from.num_rows() * panels, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> work(static_cast<size_t>(3 * padded_width(most)));
    std::vector<float> terms(has_terms ? static_cast<size_t>(rows * padded_width(most)) : 0);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % panels * most;
      const SoftmaxPanel panel{.dtype = input.dtype(),
                               .x = input.data_as<char>() + (from.offset(task / panels) + first) * bytes,
                               .x_stride = input.stride(dim),
                               .y = output.data_as<char>() + (to.offset(task / panels) + first) * bytes,
                               .y_stride = output.stride(dim),
                               .rows = rows,
                               .width = std::min(most, from.row_length() - first),
                               .work = work.data(),
                               .terms = has_terms ? terms.data() : nullptr,
                               .stream = stream,
                               .ahead = fetched_ahead(input, to_next_panel)};
      log ? log_softmax_panel(panel) : softmax_panel(panel);
    }
    if (stream) hwy::FlushStream();
  });
}

// Bytes of rows that pass the kernel together: they stay in L1.
constexpr int64_t kBlockBytes = 16384;

void softmax_of_rows(bool log, const TensorView& input, const TensorView& output) {
  const DenseRows from(input, input.shape()), to(output, input.shape());
  const DType dtype = input.dtype();
  const int64_t length = input.size(-1), bytes = length * dtype_size_bytes(dtype);
  const int64_t block = std::clamp<int64_t>(kBlockBytes / bytes, 1, SoftmaxRows::kMaxRows);
  const bool stream = writes_past_caches(output, input.data() == output.data());
  const bool has_terms = needs_terms(log, dtype, stream);
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / length);
  parallel_for(0, input.num_elements() / length, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> terms(has_terms ? static_cast<size_t>(block * padded_width(length)) : 0);
    std::vector<char> spare(from.is_dense() && to.is_dense() ? 0 : static_cast<size_t>(2 * block * bytes));
    const int64_t ahead = from.is_dense() ? fetched_ahead(input, block * bytes) : 0;
    SoftmaxRows rows{dtype, length, 0, {}, {}, has_terms ? terms.data() : nullptr, stream, ahead};
    const auto spare_row = [&](int64_t r) { return spare.empty() ? nullptr : spare.data() + r * bytes; };
    for (int64_t first = begin; first < end; first += block) {
      rows.num_rows = std::min(block, end - first);
      for (int64_t r = 0; r < rows.num_rows; ++r) {
        rows.x[r] = from.dense(first + r, spare_row(r), true);
        rows.y[r] = to.dense(first + r, spare_row(block + r), false);
      }
      log ? log_softmax_rows(rows) : softmax_rows(rows);
      for (int64_t r = 0; r < rows.num_rows; ++r) to.put_back(first + r, static_cast<const char*>(rows.y[r]));
    }
    if (stream) hwy::FlushStream();
  });
}

Status run(bool log, const TensorView& input, int dim, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_arguments(input, dim, output));
  if (input.num_elements() == 0) return ok_status();
  if (dim < 0) dim += input.num_dims();
  const auto columns = column_dim(input, dim, output);
  if (columns && (input.stride(dim) != 1 || output.stride(dim) != 1)) {
    softmax_columns(log, input, dim, *columns, output);
    return ok_status();
  }
  QX_ASSIGN_OR_RETURN(const TensorView rows, input.transpose(dim, -1));
  QX_ASSIGN_OR_RETURN(const TensorView results, output.transpose(dim, -1));
  softmax_of_rows(log, rows, results);
  return ok_status();
}

}  // namespace

Status softmax(const TensorView& input, int dim, const TensorView& output) { return run(false, input, dim, output); }

Status softmax(const TensorView& input, const TensorView& output) { return run(false, input, -1, output); }

Status log_softmax(const TensorView& input, int dim, const TensorView& output) { return run(true, input, dim, output); }

}  // namespace qx::kernels
