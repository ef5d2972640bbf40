#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/low_precision_gemm/converted_product.h"
#include "quincunx/kernels/low_precision_gemm/dot_product.h"
#include "quincunx/kernels/low_precision_gemm/operand_checks.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"

namespace qx::kernels {
namespace {

Status check_matrix(std::string_view name, const TensorView& view) {
  QX_RETURN_IF_ERROR(check_rank(name, view, 2));
  return check_float_operand(name, view);
}

Status check_weight(const PackedWeight& weight, const TensorView& output) {
  QX_ASSIGN_OR_RETURN(int64_t size, packed_weight_size_bytes(weight.format, weight.inner, weight.columns));
  if (weight.data == nullptr && size != 0) {
    return invalid_argument("weight: null data for a packed [" + std::to_string(weight.inner) + ", " +
                            std::to_string(weight.columns) + "] matrix");
  }
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(const_cast<uint8_t*>(weight.data), DType::kUInt8, std::span(&size, 1)));
  return check_memory_apart("weight", packed, "output", output);
}

Status check_shapes(const TensorView& a, const PackedWeight& weight, const TensorView& output) {
  if (a.size(1) != weight.inner) {
    return invalid_argument("a: expected " + std::to_string(weight.inner) + " columns, the rows of weight, got " +
                            a.to_string());
  }
  if (output.size(0) != a.size(0) || output.size(1) != weight.columns) {
    return invalid_argument("output: expected [" + std::to_string(a.size(0)) + ", " + std::to_string(weight.columns) +
                            "], got " + output.to_string());
  }
  return ok_status();
}

Status check_input_quantization(const LowPrecisionOptions& options, WeightFormat format) {
  const std::string name(weight_format_name(format));
  switch (options.input) {
    case InputQuantization::kNone: return ok_status();
    case InputQuantization::kDynamic:
      if (format != WeightFormat::kBFloat16 && format != WeightFormat::kFloat16) return ok_status();
      return invalid_argument("input: expected kNone for " + name + " weights, which are not integers, got kDynamic");
    case InputQuantization::kStatic: break;
    default:
      return invalid_argument("input: expected a value of the enumeration, got " +
                              std::to_string(static_cast<int>(options.input)));
  }
  if (format != WeightFormat::kInt8) {
    return invalid_argument("input: kStatic expects int8 weights, got " + name);
  }
  if (!(options.input_scale > 0.0f) || !std::isfinite(options.input_scale) ||
      !std::isfinite(1.0f / options.input_scale)) {
    return invalid_argument("input_scale: expected a positive finite number with a finite inverse, got " +
                            std::to_string(options.input_scale));
  }
  if (options.input_zero_point < -128 || options.input_zero_point > 127) {
    return invalid_argument("input_zero_point: expected a value in [-128, 127], got " +
                            std::to_string(options.input_zero_point));
  }
  return ok_status();
}

Status check_epilogue(const LowPrecisionOptions& options, const TensorView& output) {
  if (options.activation > Activation::kSilu) {
    return invalid_argument("activation: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(options.activation)));
  }
  if (options.bias != nullptr) {
    QX_RETURN_IF_ERROR(check_vector("bias", *options.bias, output.size(1), "columns of output"));
    QX_RETURN_IF_ERROR(check_float_operand("bias", *options.bias));
    QX_RETURN_IF_ERROR(check_memory_apart("bias", *options.bias, "output", output));
  }
  if (options.residual != nullptr) {
    QX_RETURN_IF_ERROR(check_matrix("residual", *options.residual));
    QX_RETURN_IF_ERROR(check_same_shape("residual", *options.residual, "output", output));
    QX_RETURN_IF_ERROR(check_memory_apart("residual", *options.residual, "output", output));
  }
  return ok_status();
}

FloatMatrix matrix_of(const TensorView& view) { return {view.dtype(), view.data(), view.stride(0), view.stride(1)}; }

bool has_direct_rows(const TensorView& view) {
  return view.dtype() == DType::kFloat32 && (view.size(-1) <= 1 || view.stride(-1) == 1);
}

void load_rows(const TensorView& view, float* rows) {
  const FloatMatrix from = matrix_of(view);
  for (int64_t i = 0; i < view.size(0); ++i) {
    load_row_as_f32(from.dtype, from.at(i, 0), from.column_stride, view.size(1), rows + i * view.size(1));
  }
}

void multiply(const LowPrecisionProduct& product) {
  const bool is_bfloat16 =
      product.weight.format == WeightFormat::kBFloat16 && product.a.dtype == DType::kBFloat16 && has_bfloat16_dot();
  if (product.weight.inner > 0 && (product.input != InputQuantization::kNone || is_bfloat16)) {
    return multiply_dot(product);
  }
  multiply_converted(product);
}

// The kernels want bias and residual in contiguous rows of f32: other ones go through a copy.
void multiply_staged(LowPrecisionProduct product, const LowPrecisionOptions& options) {
  const int64_t columns = product.weight.columns;
  const bool copies_residual = options.residual != nullptr && !has_direct_rows(*options.residual);
  const Workspace staging((options.bias != nullptr ? columns : 0) + (copies_residual ? product.rows * columns : 0));
  float* free = staging.data();
  if (options.bias != nullptr) {
    load_row_as_f32(options.bias->dtype(), options.bias->data(), options.bias->stride(0), columns, free);
    product.epilogue.bias = free;
    free += columns;
  }
  if (copies_residual) {
    load_rows(*options.residual, free);
    product.epilogue.residual = free;
    product.epilogue.residual_row_stride = columns;
  } else if (options.residual != nullptr) {
    product.epilogue.residual = options.residual->data_as<const float>();
    product.epilogue.residual_row_stride = options.residual->stride(0);
  }
  multiply(product);
}

}  // namespace

Result<InputQuantization> input_quantization_from_name(std::string_view name) {
  if (name == "none") return InputQuantization::kNone;
  if (name == "dynamic") return InputQuantization::kDynamic;
  if (name == "static") return InputQuantization::kStatic;
  return invalid_argument("input: expected \"none\", \"dynamic\" or \"static\", got \"" + std::string(name) + "\"");
}

Status low_precision_gemm(const TensorView& a, const PackedWeight& weight, const TensorView& output,
                          const LowPrecisionOptions& options) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  QX_RETURN_IF_ERROR(check_weight(weight, output));
  QX_RETURN_IF_ERROR(check_shapes(a, weight, output));
  QX_RETURN_IF_ERROR(check_output_writable(output));
  QX_RETURN_IF_ERROR(check_memory_apart("a", a, "output", output));
  QX_RETURN_IF_ERROR(check_input_quantization(options, weight.format));
  QX_RETURN_IF_ERROR(check_epilogue(options, output));
  if (output.num_elements() == 0) return ok_status();
  LowPrecisionProduct product;
  product.a = matrix_of(a);
  if (a.num_elements() == 0) product.a.row_stride = 0;  // no row may be counted from a pointer that can be null
  product.rows = a.size(0);
  product.weight = weight;
  product.output = matrix_of(output);
  product.epilogue.activation = options.activation;
  product.input = options.input;
  product.input_scale = options.input_scale;
  product.input_zero_point = options.input == InputQuantization::kStatic ? options.input_zero_point : 0;
  multiply_staged(product, options);
  return ok_status();
}

}  // namespace qx::kernels
