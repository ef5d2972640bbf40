#include "quincunx/kernels/gemm/gemm.h"

#include <string>

#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"

namespace qx::kernels {
namespace {

Status check_matrix(std::string_view name, const TensorView& view) {
  if (view.num_dims() != 2) {
    return invalid_argument(std::string(name) + ": expected two dimensions, got " + view.to_string());
  }
  return check_f32_operand(name, view);
}

Status check_sizes(const TensorView& a, int64_t inner, int64_t columns, const TensorView& output) {
  if (a.size(1) != inner) {
    return invalid_argument("a: expected " + std::to_string(inner) + " columns, the rows of b, got " + a.to_string());
  }
  if (output.size(0) != a.size(0) || output.size(1) != columns) {
    return invalid_argument("output: expected [" + std::to_string(a.size(0)) + ", " + std::to_string(columns) +
                            "], got " + output.to_string());
  }
  return ok_status();
}

Status check_options(const GemmOptions& options, const TensorView& output) {
  if (options.activation > Activation::kSilu) {
    return invalid_argument("activation: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(options.activation)));
  }
  if (options.bias != nullptr) {
    if (options.bias->num_dims() != 1 || options.bias->size(0) != output.size(1)) {
      return invalid_argument("bias: expected [" + std::to_string(output.size(1)) + "], got " +
                              options.bias->to_string());
    }
    QX_RETURN_IF_ERROR(check_f32_operand("bias", *options.bias));
    QX_RETURN_IF_ERROR(check_output_apart("bias", *options.bias, output));
  }
  if (options.residual != nullptr) {
    QX_RETURN_IF_ERROR(check_matrix("residual", *options.residual));
    if (options.residual->size(0) != output.size(0) || options.residual->size(1) != output.size(1)) {
      return invalid_argument("residual: expected the shape of output, " + output.to_string() + ", got " +
                              options.residual->to_string());
    }
    QX_RETURN_IF_ERROR(check_output_apart("residual", *options.residual, output));
  }
  return ok_status();
}

bool has_contiguous_rows(const TensorView& view) { return view.size(-1) <= 1 || view.stride(-1) == 1; }

// Rows of `view`, copied to `storage` if their elements are apart.
StridedMatrix with_contiguous_rows(const TensorView& view, float* storage) {
  const auto* data = view.data_as<const float>();
  if (has_contiguous_rows(view)) return {data, view.stride(0), 1};
  for (int64_t i = 0; i < view.size(0); ++i) {
    for (int64_t j = 0; j < view.size(1); ++j) {
      storage[i * view.size(1) + j] = data[i * view.stride(0) + j * view.stride(1)];
    }
  }
  return {storage, view.size(1), 1};
}

// Floats that prepare_and_multiply needs beside the operands.
int64_t staging_size(const TensorView& output, const GemmOptions& options) {
  int64_t size = has_contiguous_rows(output) ? 0 : output.num_elements();
  if (options.bias != nullptr) size += output.size(1);
  if (options.residual != nullptr && !has_contiguous_rows(*options.residual)) size += output.num_elements();
  return size;
}

// The kernel wants contiguous rows of bias, residual and output: other layouts go through a copy.
void multiply_staged(const TensorView& a, const PackedMatrix& b, const TensorView& output, const GemmOptions& options) {
  const Workspace staging(staging_size(output, options));
  float* free = staging.data();
  MatrixProduct product;
  product.a = {a.data_as<const float>(), a.stride(0), a.stride(1)};
  product.rows = output.size(0);
  product.inner = b.inner;
  product.packed_b = b.data;
  product.columns = b.columns;
  product.epilogue.scale = options.scale;
  product.epilogue.activation = options.activation;
  if (options.bias != nullptr) {
    const auto* bias = options.bias->data_as<const float>();
    for (int64_t j = 0; j < b.columns; ++j) free[j] = bias[j * options.bias->stride(0)];
    product.epilogue.bias = free;
    free += b.columns;
  }
  if (options.residual != nullptr) {
    const StridedMatrix rows = with_contiguous_rows(*options.residual, free);
    product.epilogue.residual = rows.data;
    product.epilogue.residual_row_stride = rows.row_stride;
    if (rows.data == free) free += output.num_elements();
  }
  if (has_contiguous_rows(output)) {
    product.c = output.data_as<float>();
    product.c_row_stride = output.stride(0);
    return multiply(product);
  }
  product.c = free;
  product.c_row_stride = b.columns;
  multiply(product);
  for (int64_t i = 0; i < output.size(0); ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      output.data_as<float>()[i * output.stride(0) + j * output.stride(1)] = free[i * b.columns + j];
    }
  }
}

}  // namespace

Result<Activation> activation_from_name(std::string_view name) {
  if (name == "none") return Activation::kNone;
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  if (name == "gelu_erf") return Activation::kGeluErf;
  if (name == "silu") return Activation::kSilu;
  return invalid_argument("activation: expected \"none\", \"relu\", \"gelu_tanh\", \"gelu_erf\" or \"silu\", got \"" +
                          std::string(name) + "\"");
}

Result<int64_t> packed_matrix_size(int64_t inner, int64_t columns) {
  if (inner < 0 || columns < 0) {
    return invalid_argument("shape: sizes must not be negative, got [" + std::to_string(inner) + ", " +
                            std::to_string(columns) + "]");
  }
  int64_t padded = 0;
  int64_t size = 0;
  int64_t bytes = 0;
  if (__builtin_add_overflow(columns, kPanelColumns - 1, &padded) ||
      __builtin_mul_overflow(padded / kPanelColumns * kPanelColumns, inner, &size) ||
      __builtin_mul_overflow(size, int64_t{sizeof(float)}, &bytes)) {
    return invalid_argument("shape: the packed size of [" + std::to_string(inner) + ", " + std::to_string(columns) +
                            "] overflows 64 bits");
  }
  return size;
}

Result<PackedMatrix> pack_b(const TensorView& b, std::span<float> storage) {
  QX_RETURN_IF_ERROR(check_matrix("b", b));
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_matrix_size(b.size(0), b.size(1)));
  if (static_cast<int64_t>(storage.size()) < size || (size > 0 && storage.data() == nullptr)) {
    return invalid_argument("storage: expected " + std::to_string(size) + " floats for " + b.to_string() + ", got " +
                            std::to_string(storage.size()));
  }
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(storage.data(), DType::kFloat32, std::span(&size, 1)));
  if (may_overlap(b, packed)) {
    return invalid_argument("storage: overlaps b " + b.to_string() + " in memory; expected a buffer of its own");
  }
  pack_panels({b.data_as<const float>(), b.stride(0), b.stride(1)}, b.size(0), b.size(1), storage.data());
  return PackedMatrix{storage.data(), b.size(0), b.size(1)};
}

Status gemm(const TensorView& a, const PackedMatrix& b, const TensorView& output, const GemmOptions& options) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  QX_ASSIGN_OR_RETURN(int64_t packed_size, packed_matrix_size(b.inner, b.columns));
  if (b.data == nullptr && packed_size != 0) {
    return invalid_argument("b: null data for a packed [" + std::to_string(b.inner) + ", " + std::to_string(b.columns) +
                            "] matrix");
  }
  QX_RETURN_IF_ERROR(check_sizes(a, b.inner, b.columns, output));
  QX_RETURN_IF_ERROR(check_output_writable(output));
  QX_RETURN_IF_ERROR(check_output_apart("a", a, output));
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(const_cast<float*>(b.data), DType::kFloat32, std::span(&packed_size, 1)));
  QX_RETURN_IF_ERROR(check_output_apart("b", packed, output));
  QX_RETURN_IF_ERROR(check_options(options, output));
  multiply_staged(a, b, output, options);
  return ok_status();
}

Status gemm(const TensorView& a, const TensorView& b, const TensorView& output, const GemmOptions& options) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_matrix("b", b));
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  QX_RETURN_IF_ERROR(check_sizes(a, b.size(0), b.size(1), output));
  QX_RETURN_IF_ERROR(check_output_writable(output));
  QX_RETURN_IF_ERROR(check_output_apart("a", a, output));
  QX_RETURN_IF_ERROR(check_output_apart("b", b, output));
  QX_RETURN_IF_ERROR(check_options(options, output));
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_matrix_size(b.size(0), b.size(1)));
  const Workspace storage(size);
  pack_panels({b.data_as<const float>(), b.stride(0), b.stride(1)}, b.size(0), b.size(1), storage.data());
  multiply_staged(a, {storage.data(), b.size(0), b.size(1)}, output, options);
  return ok_status();
}

}  // namespace qx::kernels
