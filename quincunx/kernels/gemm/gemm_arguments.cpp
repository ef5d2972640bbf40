#include "quincunx/kernels/gemm/gemm_arguments.h"

#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"

namespace qx::kernels {
namespace {

bool has_contiguous_rows(const TensorView& view) { return view.size(-1) <= 1 || view.stride(-1) == 1; }

bool is_contiguous_vector(const TensorView& view) { return view.size(0) <= 1 || view.stride(0) == 1; }

// Copies views whose elements are apart into one leased buffer, because the kernel wants contiguous rows.
class Staging {
 public:
  static int64_t size_of_vector(const TensorView* view) {
    return view == nullptr || is_contiguous_vector(*view) ? 0 : view->size(0);
  }
  static int64_t size_of_matrix(const TensorView* view) {
    return view == nullptr || has_contiguous_rows(*view) ? 0 : view->num_elements();
  }

  explicit Staging(int64_t size) : memory_(size), free_(memory_.data()) {}

  const float* vector(const TensorView* view) {
    if (view == nullptr) return nullptr;
    const auto* data = view->data_as<const float>();
    if (is_contiguous_vector(*view)) return data;
    float* copy = take(view->size(0));
    for (int64_t i = 0; i < view->size(0); ++i) copy[i] = data[i * view->stride(0)];
    return copy;
  }

  StridedMatrix matrix(const TensorView& view) {
    const auto* data = view.data_as<const float>();
    if (has_contiguous_rows(view)) return {data, view.stride(0), 1};
    float* copy = take(view.num_elements());
    for (int64_t i = 0; i < view.size(0); ++i) {
      for (int64_t j = 0; j < view.size(1); ++j) {
        copy[i * view.size(1) + j] = data[i * view.stride(0) + j * view.stride(1)];
      }
    }
    return {copy, view.size(1), 1};
  }

  float* take(int64_t count) {
    float* taken = free_;
    free_ += count;
    return taken;
  }

 private:
  Workspace memory_;
  float* free_;
};

void copy_to(const float* rows, const TensorView& output) {
  for (int64_t i = 0; i < output.size(0); ++i) {
    for (int64_t j = 0; j < output.size(1); ++j) {
      output.data_as<float>()[i * output.stride(0) + j * output.stride(1)] = rows[i * output.size(1) + j];
    }
  }
}

}  // namespace

Status check_matrix(std::string_view name, const TensorView& view) {
  if (view.num_dims() != 2) {
    return invalid_argument(std::string(name) + ": expected two dimensions, got " + view.to_string());
  }
  return check_f32_operand(name, view);
}

Status check_product(const TensorView& a, int64_t inner, int64_t columns, const TensorView& output) {
  if (a.size(1) != inner) {
    return invalid_argument("a: expected " + std::to_string(inner) + " columns, the rows of b, got " + a.to_string());
  }
  if (output.size(0) != a.size(0) || output.size(1) != columns) {
    return invalid_argument("output: expected [" + std::to_string(a.size(0)) + ", " + std::to_string(columns) +
                            "], got " + output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  return check_output_apart("a", a, output);
}

Status check_bias(std::string_view name, const TensorView& bias, int64_t columns, const TensorView& output) {
  if (bias.num_dims() != 1 || bias.size(0) != columns) {
    return invalid_argument(std::string(name) + ": expected [" + std::to_string(columns) + "], got " +
                            bias.to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand(name, bias));
  return check_output_apart(name, bias, output);
}

Status check_options(const GemmOptions& options, const TensorView& output) {
  if (options.activation > Activation::kSilu) {
    return invalid_argument("activation: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(options.activation)));
  }
  if (options.bias != nullptr) QX_RETURN_IF_ERROR(check_bias("bias", *options.bias, output.size(1), output));
  if (options.row_scale != nullptr) {
    QX_RETURN_IF_ERROR(check_bias("row_scale", *options.row_scale, output.size(0), output));
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

void multiply_views(const TensorView& a, const Panels& b, const TensorView& output, const GemmOptions& options) {
  Staging staging(Staging::size_of_matrix(&output) + Staging::size_of_vector(options.bias) +
                  Staging::size_of_vector(b.up_bias) + Staging::size_of_vector(options.row_scale) +
                  Staging::size_of_matrix(options.residual));
  MatrixProduct product;
  product.a = {a.data_as<const float>(), a.stride(0), a.size(1) <= 1 ? 1 : a.stride(1)};
  product.rows = output.size(0);
  product.inner = b.inner;
  product.packed_b = b.data;
  product.columns = b.columns;
  product.gated = b.gated;
  product.epilogue.scale = options.scale;
  product.epilogue.activation = options.activation;
  product.epilogue.bias = staging.vector(options.bias);
  product.epilogue.up_bias = staging.vector(b.up_bias);
  product.epilogue.row_scale = staging.vector(options.row_scale);
  if (options.residual != nullptr) {
    const StridedMatrix rows = staging.matrix(*options.residual);
    product.epilogue.residual = rows.data;
    product.epilogue.residual_row_stride = rows.row_stride;
  }
  if (has_contiguous_rows(output)) {
    product.c = output.data_as<float>();
    product.c_row_stride = output.stride(0);
    return multiply(product);
  }
  product.c = staging.take(output.num_elements());
  product.c_row_stride = output.size(1);
  multiply(product);
  copy_to(product.c, output);
}

}  // namespace qx::kernels
