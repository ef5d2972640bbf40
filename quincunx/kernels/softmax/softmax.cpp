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

// Calls body(column, load, store) for each vector of columns, the last one perhaps with fewer lanes than it has.
template <class Body>
HWY_INLINE void ForEachVector(int64_t width, const Body& body) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= width; c += lanes) {
    body(
        c, [d](const float* p) HWY_ATTR { return hn::LoadU(d, p); },
        [d](Vector v, float* p) HWY_ATTR { hn::StoreU(v, d, p); });
  }
  const auto rest = static_cast<size_t>(width - c);
  if (rest == 0) return;
  body(
      c, [d, rest](const float* p) HWY_ATTR { return LoadFloatTail(d, p, rest); },
      [d, rest](Vector v, float* p) HWY_ATTR { StoreFloatTail(v, d, p, rest); });
}

// The terms of one row join `partial`.
template <bool kLog>
HWY_INLINE void AddExpRow(const float* x, int64_t width, const float* largest, float* partial, float* y) {
  const Tag d;
  ForEachVector(width, [=](int64_t c, const auto& load, const auto& store) HWY_ATTR {
    const Vector e = ExpOfDifference(d, hn::Sub(load(x + c), load(largest + c)));
    if constexpr (!kLog) store(e, y + c);
    store(hn::Add(load(partial + c), e), partial + c);
  });
}

// Row after row, as they lie in memory, with one maximum and one sum a column in `work` (three times the width).
template <bool kLog>
HWY_INLINE void SoftmaxColumns(const SoftmaxPanel& panel, int64_t width, float* work) {
  const Tag d;
  float *largest = work, *sum = work + width, *partial = sum + width;
  for (int64_t c = 0; c < width; ++c) {
    largest[c] = -std::numeric_limits<float>::infinity();
    sum[c] = partial[c] = 0;
  }
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float* x = panel.x + r * panel.x_stride;
    ForEachVector(width, [=](int64_t c, const auto& load, const auto& store)
                             HWY_ATTR { store(hn::Max(load(x + c), load(largest + c)), largest + c); });
  }
  for (int64_t r = 0; r < panel.rows; ++r) {
    AddExpRow<kLog>(panel.x + r * panel.x_stride, width, largest, partial, panel.y + r * panel.y_stride);
    if ((r + 1) % kRowsOfPartialSum != 0 && r + 1 != panel.rows) continue;
    ForEachVector(width, [=](int64_t c, const auto& load, const auto& store) HWY_ATTR {
      store(hn::Add(load(sum + c), load(partial + c)), sum + c);
      store(hn::Zero(d), partial + c);
    });
  }
  ForEachVector(width, [=](int64_t c, const auto& load, const auto& store) HWY_ATTR {
    store(kLog ? Log(d, load(sum + c)) : hn::Div(hn::Set(d, 1.0f), load(sum + c)), sum + c);
  });
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float* x = kLog ? panel.x + r * panel.x_stride : panel.y + r * panel.y_stride;
    float* y = panel.y + r * panel.y_stride;
    ForEachVector(width, [=](int64_t c, const auto& load, const auto& store) HWY_ATTR {
      const Vector v = load(x + c);
      store(kLog ? hn::Sub(hn::Sub(v, load(largest + c)), load(sum + c)) : hn::Mul(v, load(sum + c)), y + c);
    });
  }
}

void SoftmaxPanelColumns(const SoftmaxPanel& panel, int64_t width, float* work) {
  SoftmaxColumns<false>(panel, width, work);
}
void LogSoftmaxPanelColumns(const SoftmaxPanel& panel, int64_t width, float* work) {
  SoftmaxColumns<true>(panel, width, work);
}

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

void run_panel(bool log, const SoftmaxPanel& panel, int64_t width, float* work) {
  if (log) {
    HWY_DYNAMIC_DISPATCH(LogSoftmaxPanelColumns)(panel, width, work);
  } else {
    HWY_DYNAMIC_DISPATCH(SoftmaxPanelColumns)(panel, width, work);
  }
}

void softmax_columns(bool log, const TensorView& input, int dim, int columns, const TensorView& output) {
  const RowOffsets from(first_rows(input, dim, columns));
  const RowOffsets to(first_rows(output, dim, columns));
  const int64_t rows = input.size(dim);
  const int64_t most = std::min(columns_of_panel(rows), from.row_length());
  const int64_t panels = (from.row_length() + most - 1) / most;
  const int64_t bytes = dtype_size_bytes(input.dtype());
  const bool direct = input.dtype() == DType::kFloat32;
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / (rows * most));
  parallel_for(0, from.num_rows() * panels, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> work(static_cast<size_t>(3 * most));
    std::vector<float> buffer(direct ? 0 : static_cast<size_t>(rows * most));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % panels * most;
      const int64_t width = std::min(most, from.row_length() - first);
      char* in = input.data_as<char>() + (from.offset(task / panels) + first) * bytes;
      char* out = output.data_as<char>() + (to.offset(task / panels) + first) * bytes;
      if (direct) {
        const SoftmaxPanel panel{reinterpret_cast<const float*>(in), input.stride(dim), reinterpret_cast<float*>(out),
                                 output.stride(dim), rows};
        run_panel(log, panel, width, work.data());
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        load_row_as_f32(input.dtype(), in + r * input.stride(dim) * bytes, 1, width, buffer.data() + r * most);
      }
      run_panel(log, {buffer.data(), most, buffer.data(), most, rows}, width, work.data());
      for (int64_t r = 0; r < rows; ++r) {
        store_row_from_f32(buffer.data() + r * most, width, output.dtype(), out + r * output.stride(dim) * bytes, 1);
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
