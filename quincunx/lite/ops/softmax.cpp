// Softmax and its logarithm over any dimension.
#include "quincunx/kernels/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/reduction.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

Status check_shapes(const TensorView& x, const TensorView& result) {
  if (!std::equal(x.shape().begin(), x.shape().end(), result.shape().begin(), result.shape().end())) {
    return invalid_argument("expected a result of the shape of " + x.to_string() + ", got " + result.to_string());
  }
  if (!is_computable(x.dtype()) || !is_computable(result.dtype())) {
    return unimplemented("no softmax of " + x.to_string());
  }
  return ok_status();
}

void softmax_row(const double* x, int64_t count, bool logarithm, double* result) {
  double best = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i) best = x[i] != x[i] || x[i] > best ? x[i] : best;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - best);
  const double log_sum = std::log(sum);
  for (int64_t i = 0; i < count; ++i) {
    result[i] = logarithm ? x[i] - best - log_sum : std::exp(x[i] - best) / sum;
  }
}

// In f64, for what the vector kernel does not cover: log_softmax, float64, results of another dtype.
Status softmax_by_rows(const TensorView& x, int64_t dim, bool logarithm, const TensorView& result) {
  QX_RETURN_IF_ERROR(check_shapes(x, result));
  QX_ASSIGN_OR_RETURN(const ReductionFrame from, ReductionFrame::create(x, {dim}));
  QX_ASSIGN_OR_RETURN(const ReductionFrame to, ReductionFrame::create(result, {dim}));
  parallel_for(0, from.num_results(), 1, [&](int64_t begin, int64_t end) {
    std::vector<double> values(static_cast<size_t>(from.num_reduced()));
    for (int64_t row = begin; row < end; ++row) {
      const TensorView source = from.reduced(row);
      const TensorView target = to.reduced(row);
      const int64_t stride = source.num_dims() == 0 ? 1 : source.stride(0);
      const double* loaded = load_row<double>(x.dtype(), source.data(), stride, from.num_reduced(), values.data());
      std::vector<double> computed(values.size());
      softmax_row(loaded, from.num_reduced(), logarithm, computed.data());
      store_row(computed.data(), to.num_reduced(), result.dtype(), target.data(),
                target.num_dims() == 0 ? 1 : target.stride(0));
    }
  });
  return ok_status();
}

// softmax(x, dim, dtype) and _softmax(x, dim, half_to_float)
Status run_softmax(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), x.num_dims()));
  if (x.num_dims() == 0 || x.dtype() != result.dtype() || !kernels::is_kernel_float(x.dtype())) {
    return softmax_by_rows(x, dim, false, result);
  }
  QX_RETURN_IF_ERROR(check_shapes(x, result));
  QX_ASSIGN_OR_RETURN(const TensorView from, x.transpose(dim, -1));
  QX_ASSIGN_OR_RETURN(const TensorView to, result.transpose(dim, -1));
  return kernels::softmax(from, to);
}

Status run_log_softmax(const Call& call) {
  QX_ASSIGN_OR_RETURN(const int dim, normalized_dim(call.integer(1), call.tensor(0).num_dims()));
  return softmax_by_rows(call.tensor(0), dim, true, call.result());
}

constexpr Operator kOperators[] = {
    {"aten.softmax.int", "Tid", run_softmax},
    {"aten._softmax.default", "Tib", run_softmax},
    {"aten.log_softmax.int", "Tid", run_log_softmax},
    {"aten._log_softmax.default", "Tib", run_log_softmax},
};

}  // namespace

std::span<const Operator> softmax_operators() { return kOperators; }

}  // namespace qx::lite
