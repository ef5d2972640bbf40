#include "quincunx/kernels/gemm/gated_gemm.h"

#include <algorithm>
#include <string>

#include "quincunx/kernels/gemm/gemm_arguments.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/operands.h"

namespace qx::kernels {
namespace {

// Packs `b` into every second panel, from `packed` on.
void pack_every_second_panel(const TensorView& b, float* packed) {
  const int64_t panel = b.size(0) * kPanelColumns;
  for (int64_t column = 0; column < b.size(1); column += kPanelColumns) {
    pack_panels({b.data_as<const float>() + column * b.stride(1), b.stride(0), b.stride(1)}, b.size(0),
                std::min(kPanelColumns, b.size(1) - column), packed);
    packed += 2 * panel;
  }
}

}  // namespace

Result<int64_t> packed_gated_matrix_size(int64_t inner, int64_t columns) {
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_matrix_size(inner, columns));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(size, int64_t{2 * sizeof(float)}, &bytes)) {
    return invalid_argument("shape: the packed size of two [" + std::to_string(inner) + ", " + std::to_string(columns) +
                            "] matrices overflows 64 bits");
  }
  return 2 * size;
}

Result<PackedGatedMatrix> pack_gated(const TensorView& gate, const TensorView& up, std::span<float> storage) {
  QX_RETURN_IF_ERROR(check_matrix("gate", gate));
  QX_RETURN_IF_ERROR(check_matrix("up", up));
  if (!std::ranges::equal(gate.shape(), up.shape())) {
    return invalid_argument("up: expected the shape of gate, " + gate.to_string() + ", got " + up.to_string());
  }
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_gated_matrix_size(gate.size(0), gate.size(1)));
  if (static_cast<int64_t>(storage.size()) < size || (size > 0 && storage.data() == nullptr)) {
    return invalid_argument("storage: expected " + std::to_string(size) + " floats for two " + gate.to_string() +
                            ", got " + std::to_string(storage.size()));
  }
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(storage.data(), DType::kFloat32, std::span(&size, 1)));
  if (may_overlap(gate, packed) || may_overlap(up, packed)) {
    return invalid_argument("storage: overlaps gate or up in memory; expected a buffer of its own");
  }
  if (size > 0) {
    pack_every_second_panel(gate, storage.data());
    pack_every_second_panel(up, storage.data() + gate.size(0) * kPanelColumns);
  }
  return PackedGatedMatrix{storage.data(), gate.size(0), gate.size(1)};
}

Status gated_gemm(const TensorView& a, const PackedGatedMatrix& b, const TensorView& output, const GemmOptions& options,
                  const TensorView* up_bias) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_gated_matrix_size(b.inner, b.columns));
  if (b.data == nullptr && size != 0) {
    return invalid_argument("b: null data for a packed pair of [" + std::to_string(b.inner) + ", " +
                            std::to_string(b.columns) + "] matrices");
  }
  QX_RETURN_IF_ERROR(check_product(a, b.inner, b.columns, output));
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(const_cast<float*>(b.data), DType::kFloat32, std::span(&size, 1)));
  QX_RETURN_IF_ERROR(check_output_apart("b", packed, output));
  QX_RETURN_IF_ERROR(check_options(options, output));
  if (up_bias != nullptr) QX_RETURN_IF_ERROR(check_bias("up_bias", *up_bias, b.columns, output));
  return with_scratch_memory([&] { multiply_views(a, {b.data, b.inner, b.columns, true, up_bias}, output, options); });
}

}  // namespace qx::kernels
