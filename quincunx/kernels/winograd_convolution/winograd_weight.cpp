#include <array>
#include <string>

#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution_kernel.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Rows of G, (1, t, t^2) over the product of t - s over the other finite points s; infinity takes (0, 0, 1).
template <size_t kPoints>
constexpr std::array<std::array<double, 3>, kPoints + 1> weight_rows(const std::array<double, kPoints>& points) {
  std::array<std::array<double, 3>, kPoints + 1> rows{};
  for (size_t i = 0; i < kPoints; ++i) {
    double scale = 1.0;
    for (size_t j = 0; j < kPoints; ++j) scale *= i == j ? 1.0 : points[i] - points[j];
    rows[i] = {1.0 / scale, points[i] / scale, points[i] * points[i] / scale};
  }
  rows[kPoints] = {0.0, 0.0, 1.0};
  return rows;
}

constexpr auto kRows2 = weight_rows<3>({0.0, 1.0, -1.0});
constexpr auto kRows4 = weight_rows<5>({0.0, kWinogradPointA, -kWinogradPointA, kWinogradPointB, -kWinogradPointB});

// Position (i, j) of G g G^T for the kernel of one pair of channels at `weight`.
double transformed(const TensorView& weight, const float* kernel, const std::array<double, 3>& row_i,
                   const std::array<double, 3>& row_j) {
  double sum = 0.0;
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 3; ++x) {
      sum += row_i[y] * row_j[x] * kernel[y * weight.stride(2) + x * weight.stride(3)];
    }
  }
  return sum;
}

void pack_panel(const TensorView& weight, int64_t output_tile, int64_t panel, float* packed) {
  const auto inputs = static_cast<size_t>(winograd_input_tile(output_tile));
  const int64_t in_channels = weight.size(1);
  const std::array<double, 3>* rows = output_tile == 4 ? kRows4.data() : kRows2.data();
  for (size_t p = 0; p < inputs * inputs; ++p) {
    for (int64_t c = 0; c < in_channels; ++c) {
      for (int64_t lane = 0; lane < kWinogradPanel; ++lane, ++packed) {
        const int64_t k = panel * kWinogradPanel + lane;
        const float* kernel = weight.data_as<const float>() + k * weight.stride(0) + c * weight.stride(1);
        *packed = k < weight.size(0)
                      ? static_cast<float>(transformed(weight, kernel, rows[p / inputs], rows[p % inputs]))
                      : 0.0f;
      }
    }
  }
}

}  // namespace

Result<int64_t> winograd_weight_size(int64_t output_tile, int64_t in_channels, int64_t out_channels) {
  if (output_tile != 2 && output_tile != 4) {
    return invalid_argument("output_tile: expected 2 or 4, got " + std::to_string(output_tile));
  }
  const std::string channels = "[" + std::to_string(out_channels) + ", " + std::to_string(in_channels) + ", 3, 3]";
  if (in_channels < 0 || out_channels < 0) {
    return invalid_argument("weight: sizes must not be negative, got " + channels);
  }
  int64_t padded = 0;
  int64_t size = 0;
  int64_t bytes = 0;
  if (__builtin_add_overflow(out_channels, kWinogradPanel - 1, &padded) ||
      __builtin_mul_overflow(padded / kWinogradPanel * kWinogradPanel, in_channels, &size) ||
      __builtin_mul_overflow(size, winograd_positions(output_tile), &size) ||
      __builtin_mul_overflow(size, int64_t{sizeof(float)}, &bytes)) {
    return invalid_argument("weight: the transformed size of " + channels + " overflows 64 bits");
  }
  return size;
}

Result<WinogradWeight> pack_winograd_weight(const TensorView& weight, int64_t output_tile, std::span<float> storage) {
  if (weight.num_dims() != 4 || weight.size(2) != 3 || weight.size(3) != 3) {
    return invalid_argument("weight: expected [out_channels, in_channels, 3, 3], got " + weight.to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("weight", weight));
  QX_ASSIGN_OR_RETURN(const int64_t size, winograd_weight_size(output_tile, weight.size(1), weight.size(0)));
  if (static_cast<int64_t>(storage.size()) < size || (size > 0 && storage.data() == nullptr)) {
    return invalid_argument("storage: expected " + std::to_string(size) + " floats for " + weight.to_string() +
                            ", got " + std::to_string(storage.size()));
  }
  const WinogradWeight packed{storage.data(), output_tile, weight.size(1), weight.size(0)};
  QX_ASSIGN_OR_RETURN(const TensorView packed_view,
                      TensorView::contiguous(storage.data(), DType::kFloat32, std::span(&size, 1)));
  if (may_overlap(weight, packed_view)) {
    return invalid_argument("storage: overlaps weight " + weight.to_string() +
                            " in memory; expected a buffer of its own");
  }
  const int64_t panel_size = winograd_positions(output_tile) * weight.size(1) * kWinogradPanel;
  parallel_for(0, winograd_panels(weight.size(0)), 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      pack_panel(weight, output_tile, panel, storage.data() + panel * panel_size);
    }
  });
  return packed;
}

}  // namespace qx::kernels
