// The packed product as a C++ caller has it, checks included: the other libraries of the table are called as C
// functions too. Called through ctypes.
#include <array>
#include <cstdint>

#include "quincunx/kernels/gemm/gemm.h"

namespace {

qx::Status multiply(float* a, const float* packed, float* output, int64_t rows, int64_t columns, int64_t inner) {
  const std::array a_shape{rows, inner};
  const std::array output_shape{rows, columns};
  QX_ASSIGN_OR_RETURN(const auto a_view, qx::TensorView::contiguous(a, qx::DType::kFloat32, a_shape));
  QX_ASSIGN_OR_RETURN(const auto output_view, qx::TensorView::contiguous(output, qx::DType::kFloat32, output_shape));
  return qx::kernels::gemm(a_view, qx::kernels::PackedMatrix{packed, inner, columns}, output_view, {});
}

}  // namespace

// output[rows, columns] = a[rows, inner] times what pack_b made of [inner, columns]; false where that is refused.
extern "C" bool qx_packed_product(float* a, const float* packed, float* output, int64_t rows, int64_t columns,
                                  int64_t inner) {
  return multiply(a, packed, output, rows, columns, inner).ok();
}
