#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "kernels/convolution/random_convolution.h"
#include "quincunx/kernels/convolution/convolution.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;

class ConvolutionArguments : public ::testing::Test {
 protected:
  ConvolutionArguments()
      : input_(normal_values(2 * 3 * 5 * 5, 1)),
        weight_(normal_values(4 * 3 * 9, 2)),
        output_(2 * 4 * 5 * 5),
        x_(f32_view(input_, {2, 3, 5, 5})),
        w_(f32_view(weight_, {4, 3, 3, 3})),
        y_(f32_view(output_, {2, 4, 5, 5})) {
    options_.geometry.padding_before = options_.geometry.padding_after = {1, 1, 0};
  }

  void expect_error(const Status& status, const char* part) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(part));
  }

  std::vector<float> input_, weight_, output_;
  TensorView x_, w_, y_;
  ConvolutionOptions options_;
};

TEST_F(ConvolutionArguments, ThoseOfTheFixtureAreRight) { EXPECT_TRUE(convolution(x_, w_, y_, options_).ok()); }

TEST_F(ConvolutionArguments, ShapesThatDoNotFitAreNamed) {
  expect_error(convolution(f32_view(input_, {3, 2, 5, 5}), w_, y_, options_), "input: expected 3 channels");
  expect_error(convolution(f32_view(input_, {6, 5, 5}), w_, y_, options_), "input: expected 4 dimensions");
  expect_error(convolution(x_, w_, f32_view(output_, {2, 4, 5, 4}), options_), "output: expected [2, 4, 5, 5]");
  expect_error(convolution(x_, f32_view(weight_, {4, 27}), y_, options_), "weight: expected output channels");
  options_.geometry.groups = 3;
  expect_error(convolution(x_, w_, y_, options_), "groups: expected a divisor");
}

TEST_F(ConvolutionArguments, GeometryOutsideItsRangeIsNamed) {
  ConvolutionOptions bad = options_;
  bad.geometry.stride[1] = 0;
  expect_error(convolution(x_, w_, y_, bad), "stride: expected 1 to");
  bad = options_;
  bad.geometry.dilation[0] = int64_t{1} << 62;
  expect_error(convolution(x_, w_, y_, bad), "dilation: expected 1 to");
  bad = options_;
  bad.geometry.padding_after[0] = -1;
  expect_error(convolution(x_, w_, y_, bad), "padding_after: expected 0 to");
  bad = options_;
  bad.geometry.output_padding[0] = 1;
  expect_error(convolution(x_, w_, y_, bad), "output_padding: expected 0 to 0, got 1");
  bad = options_;
  bad.geometry.dilation = {4, 4, 1};
  expect_error(convolution(x_, w_, y_, bad), "too small for a window of 9");
}

TEST_F(ConvolutionArguments, OverlapAndWrongTypesAreNamed) {
  expect_error(convolution(x_, w_, f32_view(input_, {1, 4, 5, 5}), options_), "output: expected [2");
  std::vector<float> shared(400);
  const TensorView part = f32_view(shared, {2, 3, 5, 5});
  expect_error(convolution(part, w_, f32_view(shared, {2, 4, 5, 5}), options_), "overlaps input");
  const TensorView repeated = strided_view(output_.data(), DType::kFloat32, {2, 4, 5, 5}, {100, 25, 0, 1});
  expect_error(convolution(x_, w_, repeated, options_), "output: the strides");
  const TensorView doubles = contiguous_view(output_.data(), DType::kFloat64, {2, 3, 5, 5});
  EXPECT_EQ(convolution(doubles, w_, y_, options_).code(), StatusCode::kTypeError);
}

TEST_F(ConvolutionArguments, EpilogueIsChecked) {
  std::vector<float> values(200);
  const TensorView five = f32_view(values, {5});
  ConvolutionOptions bad = options_;
  bad.bias = &five;
  expect_error(convolution(x_, w_, y_, bad), "bias: expected [4], got float32[5]");
  bad = options_;
  bad.scale = &five;
  expect_error(convolution(x_, w_, y_, bad), "scale: expected [4]");
  bad = options_;
  bad.residual = &five;
  expect_error(convolution(x_, w_, y_, bad), "residual: expected the shape of output");
  bad.residual = &y_;
  expect_error(convolution(x_, w_, y_, bad), "overlaps residual");
  bad = options_;
  bad.activation = ConvolutionActivation::kClamp;
  bad.clamp_low = 7;
  expect_error(convolution(x_, w_, y_, bad), "clamp_low: expected at most");
  bad.activation = static_cast<ConvolutionActivation>(99);
  expect_error(convolution(x_, w_, y_, bad), "activation: expected a value");
  bad = options_;
  bad.previous_frames = &x_;
  expect_error(convolution(x_, w_, y_, bad), "previous_frames: expected a convolution of three");
  expect_error(convolution_activation_from_name("swish").status(), "activation: expected \"none\"");
}

TEST_F(ConvolutionArguments, PackedWeightsAreRecognised) {
  const int64_t size = packed_convolution_weight_size(w_, options_.geometry).value();
  std::vector<float> storage(static_cast<size_t>(size));
  const std::span<float> small(storage.data(), storage.size() - 1);
  expect_error(pack_convolution_weight(w_, options_.geometry, small).status(), "storage: expected");
  ASSERT_TRUE(pack_convolution_weight(w_, options_.geometry, storage).ok());
  EXPECT_EQ(read_packed_convolution_weight(storage).value().out_channels, 4);
  expect_error(read_packed_convolution_weight(small).status(), "packed: expected");
  expect_error(read_packed_convolution_weight(weight_).status(), "packed: expected what pack_convolution_weight wrote");
  const PackedConvolutionWeight packed = read_packed_convolution_weight(storage).value();
  ConvolutionOptions transposed = options_;
  transposed.geometry.transposed = true;
  expect_error(convolution(x_, packed, y_, transposed), "groups and transposed: expected those");
  expect_error(convolution(x_, PackedConvolutionWeight{}, y_, options_), "weight: null data");
}

TEST_F(ConvolutionArguments, HeadersThatPackingNeverWritesAreRefused) {
  std::vector<float> storage(static_cast<size_t>(packed_convolution_weight_size(w_, options_.geometry).value()));
  ASSERT_TRUE(pack_convolution_weight(w_, options_.geometry, storage).ok());
  // Magic, form, input and output channels, groups, transposed, dimensions, three sizes of the window.
  for (const auto& [word, value] :
       {std::pair<size_t, uint32_t>{1, 9}, {2, 0}, {3, 0}, {4, 0}, {4, 5}, {6, 4}, {7, 0}}) {
    std::vector<float> broken = storage;
    std::memcpy(&broken[word], &value, sizeof(value));
    expect_error(read_packed_convolution_weight(broken).status(),
                 "packed: expected what pack_convolution_weight wrote");
  }
  std::vector<float> huge = storage;
  for (const size_t word : {7, 8, 9}) {
    const uint32_t size = 1u << 21;
    std::memcpy(&huge[word], &size, sizeof(size));
  }
  expect_error(read_packed_convolution_weight(huge).status(), "packed: expected what");
}

TEST_F(ConvolutionArguments, NullDataAndNegativeHintsAreNamed) {
  const std::vector<int64_t> shape{2, 3, 5, 5};
  expect_error(TensorView::contiguous(nullptr, DType::kFloat32, shape).status(),
               "null pointer for float32[2, 3, 5, 5]");
  const std::span<float> none;
  expect_error(pack_convolution_weight(w_, options_.geometry, none).status(), "storage: expected");
  const ConvolutionPacking packing{.exact = false, .typical_output = {0, -1, 0}};
  expect_error(packed_convolution_weight_size(w_, options_.geometry, packing).status(),
               "typical_output: expected sizes");
}

TEST_F(ConvolutionArguments, EmptyBatchesGiveNothing) {
  EXPECT_TRUE(convolution(contiguous_view(nullptr, DType::kFloat32, {0, 3, 5, 5}), w_,
                          contiguous_view(nullptr, DType::kFloat32, {0, 4, 5, 5}), options_)
                  .ok());
}

}  // namespace
}  // namespace qx::kernels
