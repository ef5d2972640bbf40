#include "quincunx/lite/ops/product.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/lite/ops/half.h"
#include "quincunx/lite/ops/reshape.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

Status check_shapes(const TensorView& a, const TensorView& b, const TensorView& output) {
  if (a.num_dims() != 2 || b.num_dims() != 2 || output.num_dims() != 2 || a.size(1) != b.size(0) ||
      output.size(0) != a.size(0) || output.size(1) != b.size(1)) {
    return invalid_argument("the shapes of " + a.to_string() + " times " + b.to_string() + " to " + output.to_string() +
                            " do not fit");
  }
  return ok_status();
}

template <typename C>
C element(const TensorView& view, int64_t offset) {
  C value;
  return *load_row(view.dtype(), view.data_as<char>() + offset * dtype_size_bytes(view.dtype()), 1, 1, &value);
}

// Rare dtypes, by the definition.
template <typename C>
void multiply_plainly(const TensorView& a, const TensorView& b, const ProductOptions& options,
                      const TensorView& output) {
  parallel_for(0, output.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t column = 0; column < output.size(1); ++column) {
        C sum = 0;
        for (int64_t k = 0; k < a.size(1); ++k) {
          const C x = element<C>(a, row * a.stride(0) + k * a.stride(1));
          const C y = element<C>(b, k * b.stride(0) + column * b.stride(1));
          if constexpr (std::is_integral_v<C>) {
            sum = static_cast<C>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
          } else {
            sum += x * y;
          }
        }
        if (options.scale != 1) sum = static_cast<C>(static_cast<double>(sum) * options.scale);
        if (options.bias != nullptr) sum += element<C>(*options.bias, column * options.bias->stride(0));
        if (options.residual != nullptr) {
          const TensorView& residual = *options.residual;
          sum += element<C>(residual, row * residual.stride(0) + column * residual.stride(1));
        }
        const int64_t offset = row * output.stride(0) + column * output.stride(1);
        store_row(&sum, 1, output.dtype(), output.data_as<char>() + offset * dtype_size_bytes(output.dtype()), 1);
      }
    }
  });
}

Status multiply_in_f32(const TensorView& a, const TensorView& b, const ProductOptions& options,
                       const TensorView& output) {
  QX_ASSIGN_OR_RETURN(const FloatInput left, FloatInput::create(a));
  QX_ASSIGN_OR_RETURN(const FloatOutput target, FloatOutput::create(output));
  kernels::GemmOptions gemm;
  gemm.scale = static_cast<float>(options.scale);
  gemm.activation = options.activation;
  std::optional<FloatInput> bias, residual;
  if (options.bias != nullptr) {
    QX_ASSIGN_OR_RETURN(bias, FloatInput::create(*options.bias));
    gemm.bias = &bias->view();
  }
  if (options.residual != nullptr) {
    QX_ASSIGN_OR_RETURN(residual, FloatInput::create(*options.residual));
    gemm.residual = &residual->view();
  }
  if (options.packed != nullptr) {
    const kernels::PackedMatrix packed = {reinterpret_cast<const float*>(options.packed->storage->data()),
                                          options.packed->inner, options.packed->columns};
    QX_RETURN_IF_ERROR(kernels::gemm(left.view(), packed, target.view(), gemm));
  } else {
    QX_ASSIGN_OR_RETURN(const FloatInput right, FloatInput::create(b));
    QX_RETURN_IF_ERROR(kernels::gemm(left.view(), right.view(), target.view(), gemm));
  }
  return target.store();
}

}  // namespace

Status multiply(const TensorView& a, const TensorView& b, const ProductOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_shapes(a, b, output));
  if (kernels::is_kernel_float(a.dtype()) && kernels::is_kernel_float(b.dtype())) {
    return multiply_in_f32(a, b, options, output);
  }
  const bool bias_fits =
      options.bias == nullptr || (options.bias->num_dims() == 1 && options.bias->size(0) == output.size(1) &&
                                  is_computable(options.bias->dtype()));
  const bool residual_fits =
      options.residual == nullptr ||
      (is_computable(options.residual->dtype()) && std::ranges::equal(options.residual->shape(), output.shape()));
  if (!bias_fits || !residual_fits) {
    return invalid_argument("bias or residual do not fit a product of shape " + output.to_string());
  }
  if (options.activation != kernels::Activation::kNone || !is_computable(a.dtype()) || !is_computable(b.dtype())) {
    return unimplemented("no product of " + a.to_string() + " and " + b.to_string());
  }
  if (is_floating_point(output.dtype())) {
    multiply_plainly<double>(a, b, options, output);
  } else {
    multiply_plainly<int64_t>(a, b, options, output);
  }
  return ok_status();
}

bool is_packable(const TensorView& matrix) {
  return kernels::is_kernel_float(matrix.dtype()) && matrix.num_dims() == 2 && matrix.data() != nullptr;
}

Result<Packed> pack_matrix(const TensorView& matrix) {
  QX_ASSIGN_OR_RETURN(const FloatInput floats, FloatInput::create(matrix));
  QX_ASSIGN_OR_RETURN(const int64_t count, kernels::packed_matrix_size(matrix.size(0), matrix.size(1)));
  Packed packed;
  packed.inner = matrix.size(0);
  packed.columns = matrix.size(1);
  const auto bytes = static_cast<int64_t>(sizeof(float));
  QX_ASSIGN_OR_RETURN(packed.storage, Storage::allocate(std::max<int64_t>(count, 1) * bytes));
  auto* data = reinterpret_cast<float*>(packed.storage->mutable_data());
  QX_RETURN_IF_ERROR(kernels::pack_b(floats.view(), {data, static_cast<size_t>(count)}).status());
  return packed;
}

Result<TensorView> as_matrix(const TensorView& x, std::shared_ptr<Storage>& storage) {
  if (x.num_dims() == 0) return invalid_argument("expected at least one dimension, got " + x.to_string());
  const int64_t inner = x.size(-1);
  const std::vector<int64_t> shape = {inner == 0 ? x.num_elements() : x.num_elements() / inner, inner};
  if (inner == 0) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < x.num_dims(); ++i) rows *= x.size(i);
    return TensorView::contiguous(x.data(), x.dtype(), std::vector<int64_t>{rows, 0});
  }
  QX_ASSIGN_OR_RETURN(const std::optional<TensorView> view, reshaped(x, shape));
  if (view) return *view;
  QX_ASSIGN_OR_RETURN(storage, Storage::allocate(x.size_bytes()));
  QX_ASSIGN_OR_RETURN(const TensorView dense, storage->view(x.dtype(), x.shape()));
  QX_RETURN_IF_ERROR(copy_elements(x, dense));
  return dense.reshape(shape);
}

}  // namespace qx::lite
