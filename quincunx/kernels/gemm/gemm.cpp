#include "quincunx/kernels/gemm/gemm.h"

#include <string>

#include "quincunx/kernels/gemm/gemm_arguments.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"

namespace qx::kernels {

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
  if (size > 0) pack_panels({b.data_as<const float>(), b.stride(0), b.stride(1)}, b.size(0), b.size(1), storage.data());
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
  QX_RETURN_IF_ERROR(check_product(a, b.inner, b.columns, output));
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(const_cast<float*>(b.data), DType::kFloat32, std::span(&packed_size, 1)));
  QX_RETURN_IF_ERROR(check_output_apart("b", packed, output));
  QX_RETURN_IF_ERROR(check_options(options, output));
  return with_scratch_memory([&] { multiply_views(a, {b.data, b.inner, b.columns}, output, options); });
}

Status gemm(const TensorView& a, const TensorView& b, const TensorView& output, const GemmOptions& options) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_matrix("b", b));
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  QX_RETURN_IF_ERROR(check_product(a, b.size(0), b.size(1), output));
  QX_RETURN_IF_ERROR(check_output_apart("b", b, output));
  QX_RETURN_IF_ERROR(check_options(options, output));
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_matrix_size(b.size(0), b.size(1)));
  return with_scratch_memory([&] {
    const Workspace storage(size);
    pack_panels({b.data_as<const float>(), b.stride(0), b.stride(1)}, b.size(0), b.size(1), storage.data());
    multiply_views(a, {storage.data(), b.size(0), b.size(1)}, output, options);
  });
}

}  // namespace qx::kernels
