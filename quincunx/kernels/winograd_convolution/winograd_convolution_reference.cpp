#include "quincunx/kernels/winograd_convolution/winograd_convolution_reference.h"

#include <array>
#include <cmath>

#include "quincunx/kernels/gemm/gemm_reference.h"

namespace qx::kernels {
namespace {

double element(const TensorView& view, const std::array<int64_t, 4>& index) {
  int64_t offset = 0;
  for (int i = 0; i < 4; ++i) offset += index[i] * view.stride(i);
  return view.data_as<const float>()[offset];
}

}  // namespace

void winograd_reference(const TensorView& input, const TensorView& weight, const WinogradOptions& options,
                        double* output, double* magnitude) {
  const WinogradPadding& padding = options.padding;
  const int64_t height = input.size(2) + padding.top + padding.bottom - 2;
  const int64_t width = input.size(3) + padding.left + padding.right - 2;
  for (int64_t n = 0; n < input.size(0); ++n) {
    for (int64_t k = 0; k < weight.size(0); ++k) {
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          double sum = 0.0;
          double absolute = 0.0;
          for (int64_t c = 0; c < input.size(1); ++c) {
            for (int64_t i = 0; i < 3; ++i) {
              for (int64_t j = 0; j < 3; ++j) {
                const int64_t row = y + i - padding.top;
                const int64_t column = x + j - padding.left;
                if (row < 0 || row >= input.size(2) || column < 0 || column >= input.size(3)) continue;
                const double product = element(weight, {k, c, i, j}) * element(input, {n, c, row, column});
                sum += product;
                absolute += std::abs(product);
              }
            }
          }
          if (options.bias != nullptr) sum += options.bias->data_as<const float>()[k * options.bias->stride(0)];
          const double residual = options.residual != nullptr ? element(*options.residual, {n, k, y, x}) : 0.0;
          *output++ = options.residual_before_activation ? activation_reference(options.activation, sum + residual)
                                                         : activation_reference(options.activation, sum) + residual;
          if (magnitude != nullptr) *magnitude++ = absolute;
        }
      }
    }
  }
}

}  // namespace qx::kernels
