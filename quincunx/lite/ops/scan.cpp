// Running sums and products along one dimension.
#include <algorithm>
#include <string>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/reduction.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

struct Add {
  static double apply(double x, double y) { return x + y; }
  static int64_t apply(int64_t x, int64_t y) {
    return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
  }
};
struct Multiply {
  static double apply(double x, double y) { return x * y; }
  static int64_t apply(int64_t x, int64_t y) {
    return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
  }
};

template <typename Functor, typename C>
void scan(const TensorView& from, const TensorView& to, C start) {
  const int64_t count = from.num_elements();
  const int64_t from_stride = from.num_dims() == 0 ? 1 : from.stride(0);
  const int64_t to_stride = to.num_dims() == 0 ? 1 : to.stride(0);
  C buffer[kRowElements];
  C running = start;
  for (int64_t first = 0; first < count; first += kRowElements) {
    const int64_t length = std::min(kRowElements, count - first);
    const char* source = from.data_as<char>() + first * from_stride * dtype_size_bytes(from.dtype());
    const C* row = load_row<C>(from.dtype(), source, from_stride, length, buffer);
    for (int64_t i = 0; i < length; ++i) buffer[i] = running = Functor::apply(running, row[i]);
    char* target = to.data_as<char>() + first * to_stride * dtype_size_bytes(to.dtype());
    store_row(buffer, length, to.dtype(), target, to_stride);
  }
}

// cumsum(x, dim, dtype)
template <typename Functor, int kStart>
Status run_scan(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  const std::vector<int64_t> dims = {call.integer(1)};
  QX_ASSIGN_OR_RETURN(const ReductionFrame from, ReductionFrame::create(x, dims));
  QX_ASSIGN_OR_RETURN(const ReductionFrame to, ReductionFrame::create(result, dims));
  if (from.num_results() != to.num_results() || from.num_reduced() != to.num_reduced()) {
    return invalid_argument("expected a result of the shape of " + x.to_string() + ", got " + result.to_string());
  }
  if (!is_computable(x.dtype()) || !is_computable(result.dtype())) {
    return unimplemented("no running sum of " + x.to_string());
  }
  parallel_for(0, from.num_results(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (is_floating_point(result.dtype())) {
        scan<Functor, double>(from.reduced(row), to.reduced(row), kStart);
      } else {
        scan<Functor, int64_t>(from.reduced(row), to.reduced(row), kStart);
      }
    }
  });
  return ok_status();
}

constexpr Operator kOperators[] = {
    {"aten.cumsum.default", "Tid", run_scan<Add, 0>},
    {"aten.cumprod.default", "Tid", run_scan<Multiply, 1>},
};

}  // namespace

std::span<const Operator> scan_operators() { return kOperators; }

}  // namespace qx::lite
