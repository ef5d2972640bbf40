// Tensors that are made of numbers.
#include <algorithm>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

Status fill(const Call& call, const Number& number) {
  return fill_elements(call.result(), number.value,
                       number.kind == Number::Kind::kFloat ? static_cast<int64_t>(number.value) : number.integer);
}

Status run_zeros(const Call& call) { return fill_elements(call.result(), 0, 0); }
Status run_ones(const Call& call) { return fill_elements(call.result(), 1, 1); }
// full(size, value, ...), full_like(x, value, ...)
Status run_full(const Call& call) { return fill(call, call.number(1)); }
Status run_scalar_tensor(const Call& call) { return fill(call, call.number(0)); }

// Element i is start + i * step, computed in f64 (or as integers), as PyTorch does.
Status run_range(const TensorView& result, const Number& start, const Number& step) {
  const bool real = is_floating_point(result.dtype());
  const TensorView* operands[] = {&result};
  QX_ASSIGN_OR_RETURN(const RowLoop loop, RowLoop::create(operands));
  const int64_t element_bytes = dtype_size_bytes(result.dtype());
  loop.run([&](const auto& pointers, int64_t count) {
    const int64_t first = (pointers[0] - result.data_as<char>()) / element_bytes;
    double reals[kRowElements];
    int64_t integers[kRowElements];
    for (int64_t i = 0; i < count; ++i) {
      reals[i] = start.value + static_cast<double>(first + i) * step.value;
      integers[i] = static_cast<int64_t>(static_cast<uint64_t>(start.integer) +
                                         static_cast<uint64_t>(first + i) * static_cast<uint64_t>(step.integer));
    }
    if (real) {
      store_row(reals, count, result.dtype(), pointers[0], loop.stride(0));
    } else {
      store_row(integers, count, result.dtype(), pointers[0], loop.stride(0));
    }
  });
  return ok_status();
}

constexpr Number kZero = {Number::Kind::kInteger, 0, 0};
constexpr Number kOne = {Number::Kind::kInteger, 1, 1};

Status run_arange(const Call& call) { return run_range(call.result(), kZero, kOne); }
Status run_arange_start(const Call& call) { return run_range(call.result(), call.number(0), kOne); }
Status run_arange_step(const Call& call) {
  return run_range(call.result(), call.number(0), call.has(2) ? call.number(2) : kOne);
}

// linspace(start, end, steps)
Status run_linspace(const Call& call) {
  const double start = call.real(0);
  const int64_t steps = call.integer(2);
  const double step = steps > 1 ? (call.real(1) - start) / static_cast<double>(steps - 1) : 0;
  return run_range(call.result(), {Number::Kind::kFloat, 0, start}, {Number::Kind::kFloat, 0, step});
}

Status run_eye(const Call& call) {
  QX_RETURN_IF_ERROR(fill_elements(call.result(), 0, 0));
  const TensorView& result = call.result();
  const int64_t count = std::min(result.size(0), result.size(1));
  const int64_t shape[] = {count};
  const int64_t strides[] = {result.stride(0) + result.stride(1)};
  QX_ASSIGN_OR_RETURN(const TensorView diagonal, TensorView::strided(result.data(), result.dtype(), shape, strides));
  return fill_elements(diagonal, 1, 1);
}

constexpr Operator kOperators[] = {
    {"aten.zeros.default", "I****", run_zeros},
    {"aten.ones.default", "I****", run_ones},
    {"aten.empty.memory_format", "I*****", run_zeros},
    {"aten.full.default", "In****", run_full},
    {"aten.zeros_like.default", "T*****", run_zeros},
    {"aten.ones_like.default", "T*****", run_ones},
    {"aten.empty_like.default", "T*****", run_zeros},
    {"aten.full_like.default", "Tn*****", run_full},
    {"aten.new_zeros.default", "TI****", run_zeros},
    {"aten.new_ones.default", "TI****", run_ones},
    {"aten.new_full.default", "TIn****", [](const Call& call) { return fill(call, call.number(2)); }},
    {"aten.fill.Scalar", "Tn", run_full},
    {"aten.scalar_tensor.default", "n****", run_scalar_tensor},
    {"aten.arange.default", "n****", run_arange},
    {"aten.arange.start", "nn****", run_arange_start},
    {"aten.arange.start_step", "nng****", run_arange_step},
    {"aten.linspace.default", "nni****", run_linspace},
    {"aten.eye.default", "i****", run_eye},
    {"aten.eye.m", "ii****", run_eye},
};

}  // namespace

std::span<const Operator> creation_operators() { return kOperators; }

}  // namespace qx::lite
