#include "quincunx/kernels/gemm/symmetric_product.h"

#include <algorithm>

#include "quincunx/kernels/gemm/gemm_arguments.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"

namespace qx::kernels {
namespace {

Status check_square_output(const TensorView& input, const TensorView& output, std::string_view name) {
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  if (output.size(0) != input.size(0) || output.size(1) != input.size(0)) {
    return invalid_argument("output: expected [" + std::to_string(input.size(0)) + ", " +
                            std::to_string(input.size(0)) + "], got " + output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  return check_output_apart(name, input, output);
}

// c[rows, rows] = scale * left right^T for a symmetric result, whose lower half is mirrored.
void multiply_symmetric(const StridedMatrix& left, const StridedMatrix& right, int64_t rows, int64_t inner, float scale,
                        float* c) {
  const Workspace packed(num_panels(rows) * kPanelColumns * inner);
  pack_panels({right.data, right.column_stride, right.row_stride}, inner, rows, packed.data());
  MatrixProduct product;
  product.a = left;
  product.rows = rows;
  product.inner = inner;
  product.packed_b = packed.data();
  product.columns = rows;
  product.c = c;
  product.c_row_stride = rows;
  product.epilogue.scale = scale;
  product.upper_only = true;
  multiply(product);
  mirror_upper_half(c, rows, rows);
}

void copy_square(const float* from, const TensorView& output) {
  for (int64_t i = 0; i < output.size(0); ++i) {
    for (int64_t j = 0; j < output.size(1); ++j) {
      output.data_as<float>()[i * output.stride(0) + j * output.stride(1)] = from[i * output.size(1) + j];
    }
  }
}

StridedMatrix strided(const TensorView& view) {
  return {view.data_as<const float>(), view.stride(0), view.size(1) <= 1 ? 1 : view.stride(1)};
}

// Calls compute(square) with the memory of `output` or, where its rows are apart, with a copy that is stored after.
template <typename Compute>
void into_square(const TensorView& output, const Compute& compute) {
  if (output.is_contiguous()) return compute(output.data_as<float>());
  const Workspace square(output.num_elements());
  compute(square.data());
  copy_square(square.data(), output);
}

}  // namespace

Status gram(const TensorView& a, const TensorView& output, float scale) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_square_output(a, output, "a"));
  QX_RETURN_IF_ERROR(packed_matrix_size(a.size(1), a.size(0)).status());
  return with_scratch_memory([&] {
    into_square(output, [&](float* square) {
      multiply_symmetric(strided(a), strided(a), a.size(0), a.size(1), scale, square);
    });
  });
}

Status symmetric_polynomial(const TensorView& x, const PolynomialStep& step, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_matrix("x", x));
  if (x.size(0) != x.size(1)) return invalid_argument("x: expected a square matrix, got " + x.to_string());
  QX_RETURN_IF_ERROR(check_square_output(x, output, "x"));
  QX_RETURN_IF_ERROR(packed_matrix_size(x.size(0), x.size(0)).status());
  return with_scratch_memory([&] {
    into_square(output, [&](float* square) {
      const int64_t rows = x.size(0);
      const StridedMatrix from = strided(x);
      multiply_symmetric(from, from, rows, rows, step.c, square);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < rows; ++j) {
          square[i * rows + j] += step.b * from.data[i * from.row_stride + j * from.column_stride];
        }
        square[i * rows + i] += step.a;
      }
    });
  });
}

}  // namespace qx::kernels
