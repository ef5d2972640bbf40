#include "quincunx/kernels/gemm/gated_gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/gemm/matrices.h"
#include "quincunx/kernels/gemm/gemm_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;

struct Layer {
  int64_t rows, inner, columns;
  std::vector<float> a, gate, up, bias, up_bias, residual, row_scale;

  Layer(int64_t m, int64_t k, int64_t n)
      : rows(m),
        inner(k),
        columns(n),
        a(random_floats(m * k, 1)),
        gate(random_floats(k * n, 2)),
        up(random_floats(k * n, 3)),
        bias(random_floats(n, 4)),
        up_bias(random_floats(n, 5)),
        residual(random_floats(m * n, 6)),
        row_scale(random_floats(m, 7)) {}

  std::vector<float> run(const GemmOptions& options, const TensorView* up_bias_view) {
    std::vector<float> storage(static_cast<size_t>(packed_gated_matrix_size(inner, columns).value()));
    const PackedGatedMatrix packed =
        pack_gated(matrix(gate, inner, columns), matrix(up, inner, columns), storage).value();
    std::vector<float> output(static_cast<size_t>(rows * columns), 9.0f);
    EXPECT_TRUE(gated_gemm(matrix(a, rows, inner), packed, matrix(output, rows, columns), options, up_bias_view).ok());
    return output;
  }

  std::vector<double> product(const std::vector<float>& b) const {
    std::vector<double> result(static_cast<size_t>(rows * columns));
    gemm_reference(a.data(), b.data(), rows, inner, columns, 1.0f, nullptr, Activation::kNone, nullptr, result.data());
    return result;
  }
};

TEST(GatedGemm, EqualsTheReferenceForAllTileShapes) {
  for_each_dispatch_target([] {
    for (const int64_t rows : {1, 2, 5, 6, 7, 13, 16, 17, 40}) {
      for (const int64_t columns : {1, 15, 16, 17, 33, 80}) {
        Layer layer(rows, 21, columns);
        GemmOptions options;
        options.activation = Activation::kSilu;
        const std::vector<float> output = layer.run(options, nullptr);
        const std::vector<double> gate = layer.product(layer.gate);
        const std::vector<double> up = layer.product(layer.up);
        for (size_t i = 0; i < output.size(); ++i) {
          const double want = activation_reference(Activation::kSilu, gate[i]) * up[i];
          // 21 roundings of each sum of products below 16, seen through the other factor.
          ASSERT_NEAR(output[i], want, 21 * 16 * 0x1p-24 * (2.0 + std::abs(gate[i]) + std::abs(up[i])) + 0x1p-20);
        }
      }
    }
  });
}

TEST(GatedGemm, AppliesEveryPartOfTheEpilogue) {
  for_each_dispatch_target([] {
    Layer layer(7, 800, 37);
    const TensorView bias = vector(layer.bias);
    const TensorView up_bias = vector(layer.up_bias);
    const TensorView row_scale = vector(layer.row_scale);
    const TensorView residual = matrix(layer.residual, layer.rows, layer.columns);
    GemmOptions options;
    options.activation = Activation::kGeluErf;
    options.scale = 0.05f;
    options.bias = &bias;
    options.row_scale = &row_scale;
    options.residual = &residual;
    const std::vector<float> output = layer.run(options, &up_bias);
    const std::vector<double> gate = layer.product(layer.gate);
    const std::vector<double> up = layer.product(layer.up);
    for (int64_t i = 0; i < layer.rows; ++i) {
      for (int64_t j = 0; j < layer.columns; ++j) {
        const auto at = static_cast<size_t>(i * layer.columns + j);
        const double activated = activation_reference(Activation::kGeluErf, 0.05f * gate[at] + layer.bias[j]);
        const double want = layer.row_scale[i] * activated * (0.05f * up[at] + layer.up_bias[j]) + layer.residual[at];
        ASSERT_NEAR(output[at], want, 2e-4 * (1.0 + std::abs(want)));
      }
    }
  });
}

TEST(GatedGemm, ThreadsDoNotChangeABit) {
  Layer layer(70, 300, 200);
  GemmOptions options;
  options.activation = Activation::kSilu;
  set_num_threads(1);
  const std::vector<float> expected = layer.run(options, nullptr);
  for (const int threads : {2, 3, 7}) {
    set_num_threads(threads);
    EXPECT_EQ(layer.run(options, nullptr), expected) << threads << " threads";
  }
  set_num_threads(0);
}

TEST(GatedGemm, KeepsNaNAndInfinity) {
  Layer layer(2, 3, 5);
  layer.a[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> output = layer.run({}, nullptr);
  for (int64_t j = 0; j < 5; ++j) {
    EXPECT_TRUE(std::isnan(output[j]));
    EXPECT_FALSE(std::isnan(output[5 + j]));
  }
}

TEST(GatedGemm, AnEmptyInnerDimensionGivesZeros) {
  Layer layer(2, 0, 3);
  EXPECT_EQ(layer.run({}, nullptr), std::vector<float>(6, 0.0f));
}

TEST(GatedGemm, BadInputNamesTheArgument) {
  Layer layer(2, 3, 4);
  std::vector<float> storage(96), output(8);
  const TensorView gate = matrix(layer.gate, 3, 4);
  EXPECT_THAT(pack_gated(gate, matrix(layer.up, 4, 3), storage).status().message(),
              HasSubstr("up: expected the shape"));
  EXPECT_THAT(pack_gated(gate, matrix(layer.up, 3, 4), std::span(storage).first(95)).status().message(),
              HasSubstr("storage: expected 96 floats"));
  EXPECT_THAT(gated_gemm(matrix(layer.a, 2, 3), {nullptr, 3, 4}, matrix(output, 2, 4), {}).message(),
              HasSubstr("b: null data"));
  const PackedGatedMatrix packed = pack_gated(gate, matrix(layer.up, 3, 4), storage).value();
  EXPECT_THAT(gated_gemm(matrix(layer.a, 3, 2), packed, matrix(output, 2, 4), {}).message(),
              HasSubstr("a: expected 3 columns"));
  const TensorView wrong = vector(layer.row_scale);
  EXPECT_THAT(gated_gemm(matrix(layer.a, 2, 3), packed, matrix(output, 2, 4), {}, &wrong).message(),
              HasSubstr("up_bias: expected [4]"));
  EXPECT_EQ(packed_gated_matrix_size(std::numeric_limits<int64_t>::max() / 64, 16).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::kernels
