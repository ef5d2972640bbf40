// Bad input to winograd_convolution and pack_winograd_weight: each error names the argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/random_values.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHuge = int64_t{1} << 40;

void expect_error(const Status& status, StatusCode code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(part));
}

class WinogradArguments : public ::testing::Test {
 protected:
  TensorView view(int64_t offset, const std::vector<int64_t>& shape) {
    return contiguous_view(memory_.data() + offset, DType::kFloat32, shape);
  }
  Status convolve(const TensorView& input, const TensorView& output) {
    return winograd_convolution(input, weight_, output, options_);
  }

  std::vector<float> memory_ = std::vector<float>(8000, 1.0f);
  std::vector<float> storage_ = std::vector<float>(36 * 2 * 16);
  WinogradWeight weight_{storage_.data(), 4, 2, 3};
  WinogradOptions options_{.padding = {1, 1, 1, 1}};
  TensorView input_ = view(0, {1, 2, 5, 6});
  TensorView output_ = view(1000, {1, 3, 5, 6});
};

TEST_F(WinogradArguments, AreRightHere) { EXPECT_TRUE(convolve(input_, output_).ok()); }

TEST_F(WinogradArguments, MismatchedChannels) {
  expect_error(convolve(view(0, {1, 4, 5, 6}), output_), StatusCode::kInvalidArgument,
               "input: expected 2 channels, as many as the weight has, got float32[1, 4, 5, 6]");
  expect_error(convolve(input_, view(1000, {1, 2, 5, 6})), StatusCode::kInvalidArgument, "output: expected 3 channels");
}

TEST_F(WinogradArguments, MismatchedOutput) {
  expect_error(convolve(input_, view(1000, {1, 3, 4, 6})), StatusCode::kInvalidArgument,
               "output: expected [1, 3, 5, 6], got float32[1, 3, 4, 6]");
  expect_error(convolve(input_, view(1000, {2, 3, 5, 6})), StatusCode::kInvalidArgument, "output: expected [1, 3, 5,");
}

TEST_F(WinogradArguments, WrongRank) {
  expect_error(convolve(view(0, {2, 5, 6}), output_), StatusCode::kInvalidArgument,
               "input: expected [batch, channels, height, width], got float32[2, 5, 6]");
}

TEST_F(WinogradArguments, UnsupportedDtypeAndDevice) {
  const auto half = contiguous_view(memory_.data(), DType::kBFloat16, {1, 2, 5, 6});
  expect_error(convolve(half, output_), StatusCode::kTypeError, "input: expected float32, got bfloat16[1, 2, 5, 6]");
  DLTensor tensor = input_.to_dlpack();
  tensor.device = {kDLCUDA, 0};
  expect_error(convolve(TensorView::from_dlpack(tensor).value(), output_), StatusCode::kTypeError, "input: expected a");
}

TEST_F(WinogradArguments, Padding) {
  options_.padding.left = -1;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument,
               "padding: expected no negative number, got -1 and 1 for the width");
  options_.padding = {std::numeric_limits<int64_t>::max(), 1, 1, 1};
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "the padded height overflows 64 bits");
  options_.padding = {0, 0, 0, 0};
  expect_error(convolve(view(0, {1, 2, 2, 6}), output_), StatusCode::kInvalidArgument,
               "input: expected a padded height of at least 3, got 2");
}

TEST_F(WinogradArguments, OutputOverlapsAnInput) {
  expect_error(convolve(input_, view(30, {1, 3, 5, 6})), StatusCode::kInvalidArgument, "overlaps input");
  weight_.data = memory_.data() + 1010;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "overlaps weight");
  weight_.data = storage_.data();
  options_.residual = &output_;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "overlaps residual");
  options_.residual = nullptr;
  const TensorView bias = view(1005, {3});
  options_.bias = &bias;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "overlaps bias");
}

TEST_F(WinogradArguments, OutputThatSharesElements) {
  const auto output = strided_view(memory_.data() + 1000, DType::kFloat32, {1, 3, 5, 6}, {90, 0, 6, 1});
  expect_error(convolve(input_, output), StatusCode::kInvalidArgument, "output: the strides of");
}

TEST_F(WinogradArguments, Weight) {
  weight_.data = nullptr;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "weight: null data for 1152 transformed");
  weight_.data = storage_.data();
  weight_.output_tile = 3;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "output_tile: expected 2 or 4, got 3");
}

TEST_F(WinogradArguments, Epilogue) {
  const TensorView bias = view(3000, {4});
  options_.bias = &bias;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "bias: expected [3], got float32[4]");
  options_.bias = nullptr;
  const TensorView residual = view(3000, {1, 3, 6, 5});
  options_.residual = &residual;
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "residual: expected the shape of output");
  options_.residual = nullptr;
  options_.activation = static_cast<Activation>(99);
  expect_error(convolve(input_, output_), StatusCode::kInvalidArgument, "activation: expected a value");
}

TEST_F(WinogradArguments, Packing) {
  expect_error(pack_winograd_weight(view(0, {3, 2, 3, 5}), 4, storage_).status(), StatusCode::kInvalidArgument,
               "weight: expected [out_channels, in_channels, 3, 3], got float32[3, 2, 3, 5]");
  expect_error(pack_winograd_weight(view(0, {3, 2, 3, 3}), 5, storage_).status(), StatusCode::kInvalidArgument,
               "output_tile: expected 2 or 4, got 5");
  expect_error(pack_winograd_weight(view(0, {3, 3, 3, 3}), 4, storage_).status(), StatusCode::kInvalidArgument,
               "storage: expected 1728 floats");
  expect_error(pack_winograd_weight(view(0, {3, 2, 3, 3}), 4, memory_).status(), StatusCode::kInvalidArgument,
               "storage: overlaps weight");
  expect_error(
      pack_winograd_weight(contiguous_view(memory_.data(), DType::kFloat64, {3, 2, 3, 3}), 4, storage_).status(),
      StatusCode::kTypeError, "weight: expected float32");
}

TEST_F(WinogradArguments, SizesThatOverflow) {
  expect_error(winograd_weight_size(4, kHuge, kHuge).status(), StatusCode::kInvalidArgument, "overflows 64 bits");
  expect_error(winograd_weight_size(4, -1, 2).status(), StatusCode::kInvalidArgument,
               "weight: sizes must not be negative, got [2, -1, 3, 3]");
  EXPECT_EQ(winograd_weight_size(2, 5, 17).value(), 16 * 5 * 32);
}

}  // namespace
}  // namespace qx::kernels
