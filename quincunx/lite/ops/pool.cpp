// Pooling over windows of images: one, two or three spatial dimensions.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/reshape.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

constexpr size_t kMaxSpatial = 3;
using Sizes = std::array<int64_t, kMaxSpatial>;

// Half-open window in one dimension: where it reads, and how long it is with the padding that counts.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t padded_length = 0;
};

struct Pooling {
  size_t spatial = 2;
  std::vector<Window> windows[kMaxSpatial];  // for each index of the result
};

Result<std::pair<int64_t, Sizes>> planes_of(const TensorView& x, size_t spatial) {
  const auto leading = x.num_dims() - static_cast<int>(spatial);
  if (leading < 0) return invalid_argument("expected at least " + std::to_string(spatial) + " dimensions");
  std::pair<int64_t, Sizes> planes = {1, {1, 1, 1}};
  for (int i = 0; i < leading; ++i) planes.first *= x.size(i);
  for (size_t i = 0; i < spatial; ++i) {
    planes.second[kMaxSpatial - spatial + i] = x.size(leading + static_cast<int>(i));
  }
  return planes;
}

template <typename Reduce>
Status for_each_window(const TensorView& x, const Pooling& pooling, const TensorView& result, const Reduce& reduce) {
  QX_ASSIGN_OR_RETURN(const auto from, planes_of(x, pooling.spatial));
  QX_ASSIGN_OR_RETURN(const auto to, planes_of(result, pooling.spatial));
  for (size_t i = 0; i < kMaxSpatial; ++i) {
    if (to.first != from.first || static_cast<int64_t>(pooling.windows[i].size()) != to.second[i]) {
      return invalid_argument("the windows over " + x.to_string() + " do not give " + result.to_string());
    }
  }
  if (!is_computable(x.dtype()) || !result.is_contiguous()) return unimplemented("no pooling of " + x.to_string());
  if (result.num_elements() == 0) return ok_status();
  std::vector<int64_t> flat = {from.first, from.second[0], from.second[1], from.second[2]};
  std::shared_ptr<Storage> storage;
  QX_ASSIGN_OR_RETURN(std::optional<TensorView> view, reshaped(x, flat));
  if (!view) {
    QX_ASSIGN_OR_RETURN(storage, Storage::allocate(x.size_bytes()));
    QX_ASSIGN_OR_RETURN(TensorView copy, storage->view(x.dtype(), x.shape()));
    QX_RETURN_IF_ERROR(copy_elements(x, copy));
    QX_ASSIGN_OR_RETURN(view, reshaped(copy, flat));
  }
  const int64_t results = to.second[0] * to.second[1] * to.second[2];
  const int64_t bytes = dtype_size_bytes(result.dtype());
  parallel_for(0, from.first, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(from.second[2]));
    for (int64_t plane = begin; plane < end; ++plane) {
      int64_t index = plane * results;
      for (const Window& deep : pooling.windows[0]) {
        for (const Window& high : pooling.windows[1]) {
          for (const Window& wide : pooling.windows[2]) {
            reduce(*view, plane, {deep, high, wide}, row, index, result.data_as<char>() + index * bytes);
            ++index;
          }
        }
      }
    }
  });
  return ok_status();
}

using Windows = std::array<Window, kMaxSpatial>;

// Calls body(value, place in the plane) for each element of the window, in row-major order.
template <typename Body>
void visit(const TensorView& x, int64_t plane, const Windows& windows, std::vector<double>& row, const Body& body) {
  const int64_t length = windows[2].end - windows[2].begin;
  for (int64_t deep = windows[0].begin; deep < windows[0].end; ++deep) {
    for (int64_t high = windows[1].begin; high < windows[1].end; ++high) {
      const int64_t offset =
          plane * x.stride(0) + deep * x.stride(1) + high * x.stride(2) + windows[2].begin * x.stride(3);
      const char* data = x.data_as<char>() + offset * dtype_size_bytes(x.dtype());
      const double* values = load_row(x.dtype(), data, x.stride(3), length, row.data());
      const int64_t first = (deep * x.size(2) + high) * x.size(3) + windows[2].begin;
      for (int64_t i = 0; i < length; ++i) body(values[i], first + i);
    }
  }
}

struct WindowRule {
  std::vector<int64_t> kernel, stride, padding, dilation;
  bool ceil_mode = false;
};

// The number of windows in one dimension. With ceil_mode the last one must start inside the image or its left padding.
int64_t num_windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t span = size + 2 * padding - dilation * (kernel - 1) - 1;
  if (span < 0) return 0;
  int64_t count = (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (count - 1) * stride >= size + padding) --count;
  return count;
}

// An error before a list is made for sizes that the result does not have.
Status check_count(int64_t count, int64_t declared) {
  if (count == declared) return ok_status();
  return invalid_argument("the windows give " + std::to_string(count) + " results in a dimension, the graph declares " +
                          std::to_string(declared));
}

Result<Pooling> regular_windows(const TensorView& x, const TensorView& result, size_t spatial, const WindowRule& rule) {
  QX_ASSIGN_OR_RETURN(const auto planes, planes_of(x, spatial));
  QX_ASSIGN_OR_RETURN(const auto results, planes_of(result, spatial));
  Pooling pooling;
  pooling.spatial = spatial;
  if (rule.kernel.size() != spatial || rule.stride.size() != spatial || rule.padding.size() != spatial ||
      rule.dilation.size() != spatial) {
    return invalid_argument("kernel_size, stride, padding and dilation: expected one number a dimension");
  }
  for (size_t i = 0; i < kMaxSpatial - spatial; ++i) pooling.windows[i].push_back({0, 1, 1});
  for (size_t i = 0; i < spatial; ++i) {
    const size_t dim = kMaxSpatial - spatial + i;
    const int64_t size = planes.second[dim];
    const int64_t kernel = rule.kernel[i], stride = rule.stride[i], padding = rule.padding[i];
    if (kernel < 1 || stride < 1 || padding < 0 || padding > kernel / 2 || kernel > INT32_MAX ||
        rule.dilation[i] != 1) {
      return unimplemented("expected positive kernel_size and stride, padding up to half a kernel, dilation 1, got " +
                           std::to_string(kernel) + ", " + std::to_string(stride) + ", " + std::to_string(padding) +
                           ", " + std::to_string(rule.dilation[i]));
    }
    const int64_t count = num_windows(size, kernel, stride, padding, rule.dilation[i], rule.ceil_mode);
    QX_RETURN_IF_ERROR(check_count(count, results.second[dim]));
    for (int64_t index = 0; index < count; ++index) {
      const int64_t begin = index * stride - padding;
      const int64_t padded_end = std::min(begin + kernel, size + padding);
      Window window = {std::max<int64_t>(begin, 0), std::min(begin + kernel, size), padded_end - begin};
      window.end = std::max(window.begin, window.end);
      pooling.windows[dim].push_back(window);
    }
  }
  return pooling;
}

WindowRule rule_of(const Call& call, size_t spatial) {
  WindowRule rule;
  rule.kernel = call.integers(1, spatial, 1);
  rule.stride = call.integers(2).empty() ? rule.kernel : call.integers(2, spatial, 1);
  rule.padding = call.integers(3, spatial, 0);
  rule.dilation.assign(spatial, 1);
  return rule;
}

// avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
template <size_t kSpatial>
Status run_average(const Call& call) {
  WindowRule rule = rule_of(call, kSpatial);
  rule.ceil_mode = call.flag(4);
  QX_ASSIGN_OR_RETURN(const Pooling pooling, regular_windows(call.tensor(0), call.result(), kSpatial, rule));
  const bool counts_padding = call.flag(5, true);
  const double divisor = call.real(6, 0);
  const DType dtype = call.result().dtype();
  return for_each_window(
      call.tensor(0), pooling, call.result(),
      [&](const TensorView& x, int64_t plane, const Windows& windows, std::vector<double>& row, int64_t, void* result) {
        double sum = 0;
        visit(x, plane, windows, row, [&](double value, int64_t) { sum += value; });
        double count = 1;
        for (const Window& window : windows) {
          count *= static_cast<double>(counts_padding ? window.padded_length : window.end - window.begin);
        }
        const double mean = sum / (divisor != 0 ? divisor : count);
        store_row(&mean, 1, dtype, result, 1);
      });
}

Status maximum_over(const Call& call, const Pooling& pooling) {
  const TensorView* places = call.optional_result(1);
  const DType dtype = call.result().dtype();
  return for_each_window(call.tensor(0), pooling, call.result(),
                         [&](const TensorView& x, int64_t plane, const Windows& windows, std::vector<double>& row,
                             int64_t index, void* result) {
                           double best = -std::numeric_limits<double>::infinity();
                           int64_t best_place = -1;
                           visit(x, plane, windows, row, [&](double value, int64_t place) {
                             if (best_place == -1 || value > best || (value != value && best == best)) {
                               best = value;
                               best_place = place;
                             }
                           });
                           store_row(&best, 1, dtype, result, 1);
                           if (places != nullptr) places->data_as<int64_t>()[index] = best_place;
                         });
}

// max_pool(x, kernel_size, stride, padding, dilation, ceil_mode)
template <size_t kSpatial>
Status run_maximum(const Call& call) {
  WindowRule rule = rule_of(call, kSpatial);
  rule.dilation = call.integers(4, kSpatial, 1);
  rule.ceil_mode = call.flag(5);
  const TensorView* places = call.optional_result(1);
  if (places != nullptr && (places->dtype() != DType::kInt64 || !places->is_contiguous() ||
                            places->num_elements() != call.result().num_elements())) {
    return invalid_argument("indices: expected int64 of the result's shape, got " + places->to_string());
  }
  QX_ASSIGN_OR_RETURN(const Pooling pooling, regular_windows(call.tensor(0), call.result(), kSpatial, rule));
  return maximum_over(call, pooling);
}

// Window i of n over s elements goes from floor(i s / n) to ceil((i + 1) s / n).
template <size_t kSpatial>
Result<Pooling> adaptive_windows(const Call& call) {
  QX_ASSIGN_OR_RETURN(const auto planes, planes_of(call.tensor(0), kSpatial));
  QX_ASSIGN_OR_RETURN(const auto results, planes_of(call.result(), kSpatial));
  const std::vector<int64_t> counts = call.integers(1, kSpatial, 1);
  if (counts.size() != kSpatial) return invalid_argument("output_size: expected one number a dimension");
  Pooling pooling;
  pooling.spatial = kSpatial;
  for (size_t i = 0; i < kMaxSpatial - kSpatial; ++i) pooling.windows[i].push_back({0, 1, 1});
  for (size_t i = 0; i < kSpatial; ++i) {
    const size_t dim = kMaxSpatial - kSpatial + i;
    const int64_t size = planes.second[dim];
    QX_RETURN_IF_ERROR(check_count(counts[i], results.second[dim]));
    for (int64_t index = 0; index < counts[i]; ++index) {
      const int64_t begin = index * size / counts[i];
      const int64_t end = ((index + 1) * size + counts[i] - 1) / counts[i];
      pooling.windows[dim].push_back({begin, end, end - begin});
    }
  }
  return pooling;
}

template <size_t kSpatial>
Status run_adaptive_average(const Call& call) {
  QX_ASSIGN_OR_RETURN(const Pooling pooling, adaptive_windows<kSpatial>(call));
  const DType dtype = call.result().dtype();
  return for_each_window(
      call.tensor(0), pooling, call.result(),
      [&](const TensorView& x, int64_t plane, const Windows& windows, std::vector<double>& row, int64_t, void* result) {
        double sum = 0, count = 1;
        visit(x, plane, windows, row, [&](double value, int64_t) { sum += value; });
        for (const Window& window : windows) count *= static_cast<double>(window.padded_length);
        const double mean = sum / count;
        store_row(&mean, 1, dtype, result, 1);
      });
}

template <size_t kSpatial>
Status run_adaptive_maximum(const Call& call) {
  QX_ASSIGN_OR_RETURN(const Pooling pooling, adaptive_windows<kSpatial>(call));
  return maximum_over(call, pooling);
}

constexpr Operator kOperators[] = {
    {"aten.avg_pool1d.default", "TIJJbb", run_average<1>},
    {"aten.avg_pool2d.default", "TIJJbbj", run_average<2>},
    {"aten.avg_pool3d.default", "TIJJbbj", run_average<3>},
    {"aten.max_pool1d.default", "TIJJJb", run_maximum<1>},
    {"aten.max_pool2d.default", "TIJJJb", run_maximum<2>},
    {"aten.max_pool3d.default", "TIJJJb", run_maximum<3>},
    {"aten.max_pool2d_with_indices.default", "TIJJJb", run_maximum<2>},
    {"aten.adaptive_avg_pool1d.default", "TI", run_adaptive_average<1>},
    {"aten.adaptive_avg_pool2d.default", "TI", run_adaptive_average<2>},
    {"aten._adaptive_avg_pool2d.default", "TI", run_adaptive_average<2>},
    {"aten.adaptive_avg_pool3d.default", "TI", run_adaptive_average<3>},
    {"aten.adaptive_max_pool2d.default", "TI", run_adaptive_maximum<2>},
};

}  // namespace

std::span<const Operator> pool_operators() { return kOperators; }

}  // namespace qx::lite
