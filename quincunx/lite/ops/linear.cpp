// Products with one weight matrix, the operators that most of a model's time goes to.
#include <string>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/product.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// A weight [N, K] as [K, N].
Result<TensorView> transposed(const TensorView& weight) {
  if (weight.num_dims() != 2) return invalid_argument("weight: expected [N, K], got " + weight.to_string());
  return weight.transpose(0, 1);
}

// x may have any number of leading dimensions; the result has as many.
Status run_product(const Call& call, const TensorView& x, const TensorView& matrix, ProductOptions options,
                   const TensorView* residual = nullptr) {
  std::shared_ptr<Storage> x_storage, residual_storage;
  QX_ASSIGN_OR_RETURN(const TensorView rows, as_matrix(x, x_storage));
  const int64_t shape[] = {rows.size(0), matrix.size(1)};
  if (call.result().num_elements() != shape[0] * shape[1] || call.result().num_dims() != x.num_dims()) {
    return invalid_argument("the shapes of " + x.to_string() + " times " + matrix.to_string() + " to " +
                            call.result().to_string() + " do not fit");
  }
  QX_ASSIGN_OR_RETURN(const TensorView output, call.result().reshape(shape));
  TensorView residual_rows;
  if (residual != nullptr) {
    QX_ASSIGN_OR_RETURN(residual_rows, as_matrix(*residual, residual_storage));
    options.residual = &residual_rows;
  }
  options.packed = call.packed();
  return multiply(rows, matrix, options, output);
}

std::optional<TensorView> packable(const TensorView& matrix) {
  return is_packable(matrix) ? std::optional(matrix) : std::nullopt;
}
std::optional<TensorView> packable_transposed(const TensorView& weight) {
  if (!is_packable(weight)) return std::nullopt;
  return weight.transpose(0, 1).value();
}

// linear(x, weight, bias)
std::optional<TensorView> linear_matrix(const Call& call) { return packable_transposed(call.tensor(1)); }
Status run_linear(const Call& call) {
  QX_ASSIGN_OR_RETURN(const TensorView matrix, transposed(call.tensor(1)));
  ProductOptions options;
  options.bias = call.optional_tensor(2);
  return run_product(call, call.tensor(0), matrix, options);
}

// mm(x, matrix)
std::optional<TensorView> mm_matrix(const Call& call) { return packable(call.tensor(1)); }
Status run_mm(const Call& call) {
  if (call.tensor(1).num_dims() != 2) return invalid_argument("expected matrices, got " + call.tensor(1).to_string());
  return run_product(call, call.tensor(0), call.tensor(1), {});
}

// addmm(bias, x, matrix, beta, alpha) with a bias of one row, or a whole matrix.
std::optional<TensorView> addmm_matrix(const Call& call) { return packable(call.tensor(2)); }
Status run_addmm(const Call& call) {
  const TensorView& bias = call.tensor(0);
  if (call.real(3, 1) != 1) return unimplemented("beta: expected 1, got " + std::to_string(call.real(3)));
  if (call.tensor(2).num_dims() != 2) return invalid_argument("expected matrices, got " + call.tensor(2).to_string());
  ProductOptions options;
  options.scale = call.real(4, 1);
  if (bias.num_dims() == 1 && bias.size(0) == call.tensor(2).size(1)) {
    options.bias = &bias;
    return run_product(call, call.tensor(1), call.tensor(2), options);
  }
  if (bias.num_dims() == 2 && bias.size(0) == call.result().size(0) && bias.size(1) == call.result().size(1)) {
    return run_product(call, call.tensor(1), call.tensor(2), options, &bias);
  }
  return unimplemented("bias: expected [N] or [M, N], got " + bias.to_string());
}

// qx.linear(x, weight, bias, weight_layout, activation, residual): what plan/fuse.h makes of a product and what follows
// it. The layout is "nk" for aten.linear's weight, "kn" for that of aten.mm.
std::optional<TensorView> fused_matrix(const Call& call) {
  return call.text(3) == "nk" ? packable_transposed(call.tensor(1)) : packable(call.tensor(1));
}
Status run_fused(const Call& call) {
  TensorView matrix = call.tensor(1);
  if (call.text(3) == "nk") {
    QX_ASSIGN_OR_RETURN(matrix, transposed(matrix));
  } else if (matrix.num_dims() != 2) {
    return invalid_argument("weight: expected [K, N], got " + matrix.to_string());
  }
  ProductOptions options;
  options.bias = call.optional_tensor(2);
  QX_ASSIGN_OR_RETURN(options.activation, kernels::activation_from_name(call.text(4, "none")));
  return run_product(call, call.tensor(0), matrix, options, call.optional_tensor(5));
}

constexpr Operator kOperators[] = {
    {.name = "aten.linear.default", .signature = "TTt", .run = run_linear, .matrix = linear_matrix},
    {.name = "aten.mm.default", .signature = "TT", .run = run_mm, .matrix = mm_matrix},
    {.name = "aten.addmm.default", .signature = "TTTgg", .run = run_addmm, .matrix = addmm_matrix},
    {.name = "qx.linear", .signature = "TTtsst", .run = run_fused, .matrix = fused_matrix},
};

}  // namespace

std::span<const Operator> linear_operators() { return kOperators; }

}  // namespace qx::lite
