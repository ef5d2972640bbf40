#include "quincunx/kernels/softmax/softmax.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/softmax/softmax_panel.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/softmax/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/softmax/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

void SoftmaxRow(const float* x, int64_t count, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector scale = hn::Set(d, 1 / SumOfExp<true>(x, count, LargestOf(x, count), y));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scale), d, y + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) StoreFloatTail(hn::Mul(LoadFloatTail(d, y + i, rest), scale), d, y + i, rest);
}

void LogSoftmaxRow(const float* x, int64_t count, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float largest = LargestOf(x, count);
  const Vector sum = hn::Set(d, SumOfExp<false>(x, count, largest, nullptr));
  const Vector offset = hn::Set(d, largest);
  const Vector log_sum = Log(d, sum);
  const auto apply = [&](Vector v) HWY_ATTR { return hn::Sub(hn::Sub(v, offset), log_sum); };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(apply(hn::LoadU(d, x + i)), d, y + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) StoreFloatTail(apply(LoadFloatTail(d, x + i, rest)), d, y + i, rest);
}

// Rows whose terms are summed before they join the total: a chain of all rows would round as often as there are rows.
constexpr int64_t kRowsOfPartialSum = 32;

// kCount vectors of columns, whose rows then lie in one run of memory; load and store take an address.
template <bool kLog, int kCount, class Load, class Store>
HWY_INLINE void SoftmaxColumnVectors(const SoftmaxPanel& panel, int64_t column, const Load& load, const Store& store) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = panel.x + column;
  float* y = panel.y + column;
  Vector largest[kCount], sum[kCount], partial[kCount];
  for (int k = 0; k < kCount; ++k) largest[k] = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int k = 0; k < kCount; ++k) sum[k] = hn::Zero(d);
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float* row = x + r * panel.x_stride;
    for (int k = 0; k < kCount; ++k) largest[k] = hn::Max(load(row + k * lanes), largest[k]);
  }
  for (int64_t first = 0; first < panel.rows; first += kRowsOfPartialSum) {
    const int64_t last = panel.rows - first < kRowsOfPartialSum ? panel.rows : first + kRowsOfPartialSum;
    for (int k = 0; k < kCount; ++k) partial[k] = hn::Zero(d);
    for (int64_t r = first; r < last; ++r) {
      const float* row = x + r * panel.x_stride;
      for (int k = 0; k < kCount; ++k) {
        const Vector e = ExpOfDifference(d, hn::Sub(load(row + k * lanes), largest[k]));
        if constexpr (!kLog) store(e, y + r * panel.y_stride + k * lanes);
        partial[k] = hn::Add(partial[k], e);
      }
    }
    for (int k = 0; k < kCount; ++k) sum[k] = hn::Add(sum[k], partial[k]);
  }
  for (int k = 0; k < kCount; ++k) sum[k] = kLog ? Log(d, sum[k]) : hn::Div(hn::Set(d, 1.0f), sum[k]);
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float* row = kLog ? x + r * panel.x_stride : y + r * panel.y_stride;
    for (int k = 0; k < kCount; ++k) {
      const Vector v = load(row + k * lanes);
      const Vector result = kLog ? hn::Sub(hn::Sub(v, largest[k]), sum[k]) : hn::Mul(v, sum[k]);
      store(result, y + r * panel.y_stride + k * lanes);
    }
  }
}

template <bool kLog>
HWY_INLINE void SoftmaxColumns(const SoftmaxPanel& panel, int64_t width) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto load = [d](const float* p) HWY_ATTR { return hn::LoadU(d, p); };
  const auto store = [d](Vector v, float* p) HWY_ATTR { hn::StoreU(v, d, p); };
  int64_t column = 0;
  for (; column + 4 * lanes <= width; column += 4 * lanes) SoftmaxColumnVectors<kLog, 4>(panel, column, load, store);
  for (; column + lanes <= width; column += lanes) SoftmaxColumnVectors<kLog, 1>(panel, column, load, store);
  const auto rest = static_cast<size_t>(width - column);
  if (rest == 0) return;
  SoftmaxColumnVectors<kLog, 1>(
      panel, column, [d, rest](const float* p) HWY_ATTR { return LoadFloatTail(d, p, rest); },
      [d, rest](Vector v, float* p) HWY_ATTR { StoreFloatTail(v, d, p, rest); });
}

void SoftmaxPanelColumns(const SoftmaxPanel& panel, int64_t width) { SoftmaxColumns<false>(panel, width); }
void LogSoftmaxPanelColumns(const SoftmaxPanel& panel, int64_t width) { SoftmaxColumns<true>(panel, width); }

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(LogSoftmaxRow);
HWY_EXPORT(SoftmaxPanelColumns);
HWY_EXPORT(LogSoftmaxPanelColumns);

namespace {

// Columns of a panel: four cache lines a row, so that the prefetcher sees runs, and 1,000 rows stay in L2.
constexpr int64_t kPanelColumns = 64;
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

void run_panel(bool log, const SoftmaxPanel& panel, int64_t width) {
  if (log) {
    HWY_DYNAMIC_DISPATCH(LogSoftmaxPanelColumns)(panel, width);
  } else {
    HWY_DYNAMIC_DISPATCH(SoftmaxPanelColumns)(panel, width);
  }
}

void softmax_columns(bool log, const TensorView& input, int dim, int columns, const TensorView& output) {
  const RowOffsets from(first_rows(input, dim, columns));
  const RowOffsets to(first_rows(output, dim, columns));
  const int64_t rows = input.size(dim);
  const int64_t panels = (from.row_length() + kPanelColumns - 1) / kPanelColumns;
  const int64_t bytes = dtype_size_bytes(input.dtype());
  const bool direct = input.dtype() == DType::kFloat32;
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / (rows * std::min(kPanelColumns, from.row_length())));
  parallel_for(0, from.num_rows() * panels, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(direct ? 0 : static_cast<size_t>(rows * kPanelColumns));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % panels * kPanelColumns;
      const int64_t width = std::min(kPanelColumns, from.row_length() - first);
      char* in = input.data_as<char>() + (from.offset(task / panels) + first) * bytes;
      char* out = output.data_as<char>() + (to.offset(task / panels) + first) * bytes;
      if (direct) {
        run_panel(log,
                  {reinterpret_cast<const float*>(in), input.stride(dim), reinterpret_cast<float*>(out),
                   output.stride(dim), rows},
                  width);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        load_row_as_f32(input.dtype(), in + r * input.stride(dim) * bytes, 1, width, &buffer[r * kPanelColumns]);
      }
      run_panel(log, {buffer.data(), kPanelColumns, buffer.data(), kPanelColumns, rows}, width);
      for (int64_t r = 0; r < rows; ++r) {
        store_row_from_f32(&buffer[r * kPanelColumns], width, output.dtype(), out + r * output.stride(dim) * bytes, 1);
      }
    }
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
  for_each_row_as_f32(rows, results, [&](const float* x, float* y) {
    if (log) {
      HWY_DYNAMIC_DISPATCH(LogSoftmaxRow)(x, rows.size(-1), y);
    } else {
      HWY_DYNAMIC_DISPATCH(SoftmaxRow)(x, rows.size(-1), y);
    }
  });
  return ok_status();
}

}  // namespace

Status softmax(const TensorView& input, int dim, const TensorView& output) { return run(false, input, dim, output); }

Status softmax(const TensorView& input, const TensorView& output) { return run(false, input, -1, output); }

Status log_softmax(const TensorView& input, int dim, const TensorView& output) { return run(true, input, dim, output); }

}  // namespace qx::kernels
#endif  // HWY_ONCE
