#include "quincunx/lite/ops/elementwise.h"

#include <array>
#include <string>
#include <tuple>

namespace qx::lite {
namespace {

template <typename C, size_t kInputs, typename Function>
void run_rows(const RowLoop& loop, const std::array<const TensorView*, kInputs + 1>& operands,
              const Function& function) {
  loop.run([&](const auto& pointers, int64_t count) {
    C buffers[kInputs + 1][kRowElements];
    std::array<const C*, kInputs> inputs;
    for (size_t i = 0; i < kInputs; ++i) {
      inputs[i] = load_row<C>(operands[i + 1]->dtype(), pointers[i + 1], loop.stride(i + 1), count, buffers[i + 1]);
    }
    std::apply([&](const auto*... input) { function(input..., count, buffers[0]); }, inputs);
    store_row(buffers[0], count, operands[0]->dtype(), pointers[0], loop.stride(0));
  });
}

// Rows of float32 go straight to the result.
template <size_t kInputs, typename Function>
void run_float_rows(const RowLoop& loop, const std::array<const TensorView*, kInputs + 1>& operands,
                    const Function& function) {
  if (operands[0]->dtype() != DType::kFloat32 || loop.stride(0) != 1) {
    return run_rows<float, kInputs>(loop, operands, function);
  }
  loop.run([&](const auto& pointers, int64_t count) {
    float buffers[kInputs][kRowElements];
    std::array<const float*, kInputs> inputs;
    for (size_t i = 0; i < kInputs; ++i) {
      inputs[i] = load_row<float>(operands[i + 1]->dtype(), pointers[i + 1], loop.stride(i + 1), count, buffers[i]);
    }
    auto* result = reinterpret_cast<float*>(pointers[0]);
    std::apply([&](const auto*... input) { function(input..., count, result); }, inputs);
  });
}

template <size_t kInputs, typename Rows>
Status apply(const Rows& rows, DType common, const std::array<const TensorView*, kInputs + 1>& operands) {
  for (const TensorView* operand : operands) {
    if (!is_computable(operand->dtype())) return unimplemented("no elementwise arithmetic on " + operand->to_string());
  }
  QX_ASSIGN_OR_RETURN(const RowLoop loop, RowLoop::create(operands));
  const std::string missing = "not defined for " + std::string(dtype_name(common));
  switch (compute_type(common)) {
    case ComputeType::kFloat:
      if (rows.on_float == nullptr) return type_error(missing);
      run_float_rows<kInputs>(loop, operands, rows.on_float);
      break;
    case ComputeType::kDouble:
      if (rows.on_double == nullptr) return type_error(missing);
      run_rows<double, kInputs>(loop, operands, rows.on_double);
      break;
    case ComputeType::kInteger:
      if (rows.on_integer == nullptr) return type_error(missing);
      run_rows<int64_t, kInputs>(loop, operands, rows.on_integer);
      break;
  }
  return ok_status();
}

}  // namespace

Operand::Operand(const Call& call, size_t index, double fallback) {
  if (call.is_tensor(index)) {
    view_ = call.tensor(index);
    return;
  }
  const Number number = call.number(index, fallback);
  integer_ = number.integer;
  real_ = number.value;
  const bool real = number.kind == Number::Kind::kFloat;
  view_ = TensorView::contiguous(real ? static_cast<void*>(&real_) : static_cast<void*>(&integer_),
                                 real ? DType::kFloat64 : DType::kInt64, {})
              .value();
}

Status apply_rows(const UnaryRows& rows, DType common, const TensorView& x, const TensorView& result) {
  return apply<1>(rows, common, {&result, &x});
}
Status apply_rows(const BinaryRows& rows, DType common, const TensorView& x, const TensorView& y,
                  const TensorView& result) {
  return apply<2>(rows, common, {&result, &x, &y});
}
Status apply_rows(const TernaryRows& rows, DType common, const TensorView& x, const TensorView& y, const TensorView& z,
                  const TensorView& result) {
  return apply<3>(rows, common, {&result, &x, &y, &z});
}

}  // namespace qx::lite
