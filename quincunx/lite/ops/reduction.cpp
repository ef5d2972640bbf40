// Sums, extrema and the like over dimensions. Floating point is accumulated in f64, row by row: the same bits for any
// number of threads.
#include "quincunx/lite/ops/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// Elements a task reduces at least.
constexpr int64_t kGrainElements = 16384;

template <typename C>
constexpr C lowest() {
  return std::is_floating_point_v<C> ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::min();
}
template <typename C>
constexpr C highest() {
  return std::is_floating_point_v<C> ? std::numeric_limits<C>::infinity() : std::numeric_limits<C>::max();
}
template <typename C>
bool is_nan(C x) {
  return x != x;
}

// An accumulator has add(value) for each element in order and value(number of elements).
template <typename C>
struct Sum {
  C sum = 0;
  void add(C x) {
    if constexpr (std::is_integral_v<C>) {
      sum = static_cast<C>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(x));
    } else {
      sum += x;
    }
  }
  C value(int64_t) const { return sum; }
};
template <typename C>
struct Mean : Sum<C> {
  C value(int64_t count) const { return this->sum / static_cast<C>(count); }
};
template <typename C>
struct Product {
  C product = 1;
  void add(C x) {
    if constexpr (std::is_integral_v<C>) {
      product = static_cast<C>(static_cast<uint64_t>(product) * static_cast<uint64_t>(x));
    } else {
      product *= x;
    }
  }
  C value(int64_t) const { return product; }
};
template <typename C>
struct Maximum {
  C best = lowest<C>();
  void add(C x) { best = is_nan(best) || (!is_nan(x) && x <= best) ? best : x; }
  C value(int64_t) const { return best; }
};
template <typename C>
struct Minimum {
  C best = highest<C>();
  void add(C x) { best = is_nan(best) || (!is_nan(x) && x >= best) ? best : x; }
  C value(int64_t) const { return best; }
};
template <typename C>
struct Any {
  bool found = false;
  void add(C x) { found = found || x != C{0}; }
  C value(int64_t) const { return found ? C{1} : C{0}; }
};
template <typename C>
struct All {
  bool holds = true;
  void add(C x) { holds = holds && x != C{0}; }
  C value(int64_t) const { return holds ? C{1} : C{0}; }
};
// The first of equal extrema; the first NaN before all.
template <typename C, bool kLargest>
struct BestIndex {
  C best = 0;
  int64_t index = 0;
  int64_t next = 0;
  void add(C x) {
    const bool better = !is_nan(best) && (is_nan(x) || (kLargest ? x > best : x < best));
    if (next == 0 || better) {
      best = x;
      index = next;
    }
    ++next;
  }
  int64_t value(int64_t) const { return index; }
};
template <typename C>
using ArgMax = BestIndex<C, true>;
template <typename C>
using ArgMin = BestIndex<C, false>;

template <typename C, typename Accumulator>
void accumulate(const TensorView& x, Accumulator& accumulator) {
  // The loop below runs inside a parallel_for or over all elements in order: rows come one after another.
  const int64_t length = x.num_dims() == 0 ? 1 : x.size(-1);
  const int64_t stride = x.num_dims() == 0 ? 1 : x.stride(-1);
  const int64_t bytes = dtype_size_bytes(x.dtype());
  const int64_t rows = length == 0 ? 0 : x.num_elements() / length;
  C buffer[kRowElements];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0;
    int64_t rest = row;
    for (int dim = x.num_dims() - 2; dim >= 0; --dim) {
      offset += rest % x.size(dim) * x.stride(dim);
      rest /= x.size(dim);
    }
    for (int64_t first = 0; first < length; first += kRowElements) {
      const int64_t count = std::min(kRowElements, length - first);
      const char* data = x.data_as<char>() + (offset + first * stride) * bytes;
      const C* values = load_row<C>(x.dtype(), data, stride, count, buffer);
      for (int64_t i = 0; i < count; ++i) accumulator.add(values[i]);
    }
  }
}

// `prototype` is copied for each result.
template <typename C, typename Accumulator>
void reduce_as(const ReductionFrame& frame, const Accumulator& prototype, const TensorView& result) {
  const int64_t bytes = dtype_size_bytes(result.dtype());
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, frame.num_reduced()));
  parallel_for(0, frame.num_results(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      Accumulator accumulator = prototype;
      accumulate<C>(frame.reduced(index), accumulator);
      const auto value = accumulator.value(frame.num_reduced());
      store_row(&value, 1, result.dtype(), result.data_as<char>() + index * bytes, 1);
    }
  });
}

Status check_reduction(const ReductionFrame& frame, const TensorView& x, const TensorView& result) {
  if (!is_computable(x.dtype()) || !is_computable(result.dtype())) {
    return unimplemented("no reduction of " + x.to_string() + " to " + result.to_string());
  }
  if (!result.is_contiguous() || result.num_elements() != frame.num_results()) {
    return invalid_argument("expected " + std::to_string(frame.num_results()) + " results of " + x.to_string() +
                            ", the graph declares " + result.to_string());
  }
  return ok_status();
}

template <template <typename> class Accumulator>
Status reduce(const TensorView& x, const std::vector<int64_t>& dims, const TensorView& result, bool needs_elements) {
  QX_ASSIGN_OR_RETURN(const ReductionFrame frame, ReductionFrame::create(x, dims));
  QX_RETURN_IF_ERROR(check_reduction(frame, x, result));
  if (needs_elements && frame.num_reduced() == 0 && frame.num_results() != 0) {
    return invalid_argument("expected at least one element to reduce, got " + x.to_string());
  }
  // A mean of integers is a floating-point one.
  const bool real = is_floating_point(x.dtype()) || is_floating_point(result.dtype());
  if (real) {
    reduce_as<double>(frame, Accumulator<double>(), result);
  } else {
    reduce_as<int64_t>(frame, Accumulator<int64_t>(), result);
  }
  return ok_status();
}

template <template <typename> class Accumulator, bool kNeedsElements>
Status run_over_dims(const Call& call) {
  return reduce<Accumulator>(call.tensor(0), call.integers(1), call.result(), kNeedsElements);
}
template <template <typename> class Accumulator, bool kNeedsElements>
Status run_over_all(const Call& call) {
  return reduce<Accumulator>(call.tensor(0), {}, call.result(), kNeedsElements);
}

// max.dim and min.dim: the values and where they are.
template <template <typename> class Value, template <typename> class Index>
Status run_with_index(const Call& call) {
  const std::vector<int64_t> dims = {call.integer(1)};
  QX_RETURN_IF_ERROR(reduce<Value>(call.tensor(0), dims, call.result(), true));
  if (call.optional_result(1) == nullptr) return ok_status();
  return reduce<Index>(call.tensor(0), dims, call.result(1), true);
}

// log(sum(exp(x))), about the maximum so that nothing overflows.
struct LogSumExp {
  double best = lowest<double>();
  double sum = 0;
  void add(double x) {
    if (is_nan(x) || is_nan(sum)) {
      sum = std::numeric_limits<double>::quiet_NaN();
    } else if (x > best) {
      sum = sum * std::exp(best - x) + 1;
      best = x;
    } else if (x != lowest<double>()) {
      sum += x == best ? 1 : std::exp(x - best);
    }
  }
  double value(int64_t) const { return std::isinf(best) && !is_nan(sum) ? best : best + std::log(sum); }
};

// Welford's recurrence: no cancellation for values far from zero.
struct Variance {
  double correction = 1;
  bool takes_root = false;
  double count = 0;
  double mean = 0;
  double squares = 0;
  void add(double x) {
    count += 1;
    const double before = x - mean;
    mean += before / count;
    squares += before * (x - mean);
  }
  double value(int64_t) const {
    const double variance = squares / std::max(0.0, count - correction);
    return takes_root ? std::sqrt(variance) : variance;
  }
};

struct Norm {
  double order = 2;
  double sum = 0;
  void add(double x) {
    const double size = std::fabs(x);
    if (order == std::numeric_limits<double>::infinity()) {
      sum = is_nan(sum) || size <= sum ? sum : size;
    } else {
      sum += order == 2 ? size * size : order == 1 ? size : order == 0 ? (size != 0) : std::pow(size, order);
    }
  }
  double value(int64_t) const {
    if (order == 2) return std::sqrt(sum);
    return std::isinf(order) || order <= 1 ? (order > 0 && order < 1 ? std::pow(sum, 1 / order) : sum)
                                           : std::pow(sum, 1 / order);
  }
};

template <typename Accumulator>
Status reduce_real(const Call& call, const std::vector<int64_t>& dims, const Accumulator& prototype) {
  QX_ASSIGN_OR_RETURN(const ReductionFrame frame, ReductionFrame::create(call.tensor(0), dims));
  QX_RETURN_IF_ERROR(check_reduction(frame, call.tensor(0), call.result()));
  reduce_as<double>(frame, prototype, call.result());
  return ok_status();
}

Status run_log_sum_exp(const Call& call) { return reduce_real(call, call.integers(1), LogSumExp()); }

// var(x, dims, correction, keepdim); the older form has a bool for it.
template <bool kRoot>
Status run_variance(const Call& call) {
  return reduce_real(call, call.integers(1), Variance{call.real(2, 1), kRoot});
}
template <bool kRoot>
Status run_unbiased_variance(const Call& call) {
  return reduce_real(call, call.integers(1), Variance{call.flag(2, true) ? 1.0 : 0.0, kRoot});
}

Status check_order(double order) {
  return order >= 0 ? ok_status() : unimplemented("ord: expected 0 or more, got " + std::to_string(order));
}
// linalg_vector_norm(x, ord, dim, keepdim, dtype)
Status run_vector_norm(const Call& call) {
  QX_RETURN_IF_ERROR(check_order(call.real(1, 2)));
  return reduce_real(call, call.integers(2), Norm{call.real(1, 2)});
}

constexpr Operator kOperators[] = {
    {"aten.sum.default", "Td", run_over_all<Sum, false>},
    {"aten.sum.dim_IntList", "TJbd", run_over_dims<Sum, false>},
    {"aten.mean.default", "Td", run_over_all<Mean, false>},
    {"aten.mean.dim", "TJbd", run_over_dims<Mean, false>},
    {"aten.prod.default", "Td", run_over_all<Product, false>},
    {"aten.prod.dim_int", "Tibd", run_over_dims<Product, false>},
    {"aten.amax.default", "TJb", run_over_dims<Maximum, true>},
    {"aten.amin.default", "TJb", run_over_dims<Minimum, true>},
    {"aten.max.default", "T", run_over_all<Maximum, true>},
    {"aten.min.default", "T", run_over_all<Minimum, true>},
    {"aten.max.dim", "Tib", run_with_index<Maximum, ArgMax>},
    {"aten.min.dim", "Tib", run_with_index<Minimum, ArgMin>},
    {"aten.argmax.default", "Tjb", run_over_dims<ArgMax, true>},
    {"aten.argmin.default", "Tjb", run_over_dims<ArgMin, true>},
    {"aten.any.default", "T", run_over_all<Any, false>},
    {"aten.any.dim", "Tib", run_over_dims<Any, false>},
    {"aten.any.dims", "TJb", run_over_dims<Any, false>},
    {"aten.all.default", "T", run_over_all<All, false>},
    {"aten.all.dim", "Tib", run_over_dims<All, false>},
    {"aten.all.dims", "TJb", run_over_dims<All, false>},
    {"aten.logsumexp.default", "TIb", run_log_sum_exp},
    {"aten.var.correction", "TJgb", run_variance<false>},
    {"aten.std.correction", "TJgb", run_variance<true>},
    {"aten.var.dim", "TJbb", run_unbiased_variance<false>},
    {"aten.std.dim", "TJbb", run_unbiased_variance<true>},
    {"aten.linalg_vector_norm.default", "TgJbd", run_vector_norm},
    {"aten.norm.ScalarOpt_dim", "TgJb", run_vector_norm},
    {"aten.norm.Scalar", "Tg", run_vector_norm},
};

}  // namespace

std::span<const Operator> reduction_operators() { return kOperators; }

}  // namespace qx::lite
