// Bad input to gemm and pack_b: each error names the argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "quincunx/kernels/gemm/gemm.h"

namespace qx::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = std::array<int64_t, 2>;

class GemmArguments : public ::testing::Test {
 protected:
  TensorView view(float* data, int64_t rows, int64_t columns) {
    return TensorView::contiguous(data, DType::kFloat32, Shape{rows, columns}).value();
  }
  std::vector<float> memory_ = std::vector<float>(1000, 1.0f);
  TensorView a_ = view(memory_.data(), 2, 3);
  TensorView b_ = view(memory_.data() + 100, 3, 4);
  TensorView output_ = view(memory_.data() + 200, 2, 4);
};

void expect_error(const Status& status, StatusCode code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST_F(GemmArguments, MismatchedInnerDimensions) {
  expect_error(gemm(view(memory_.data(), 2, 5), b_, output_), StatusCode::kInvalidArgument,
               "a: expected 3 columns, the rows of b, got float32[2, 5]");
}

TEST_F(GemmArguments, MismatchedOutput) {
  expect_error(gemm(a_, b_, view(memory_.data() + 200, 2, 5)), StatusCode::kInvalidArgument,
               "output: expected [2, 4], got float32[2, 5]");
}

TEST_F(GemmArguments, WrongRank) {
  const auto vector = TensorView::contiguous(memory_.data(), DType::kFloat32, std::array<int64_t, 1>{3}).value();
  expect_error(gemm(vector, b_, output_), StatusCode::kInvalidArgument, "a: expected two dimensions");
}

TEST_F(GemmArguments, UnsupportedDtype) {
  const auto half = TensorView::contiguous(memory_.data(), DType::kBFloat16, Shape{3, 4}).value();
  expect_error(gemm(a_, half, output_), StatusCode::kTypeError, "b: expected float32, got bfloat16[3, 4]");
}

TEST_F(GemmArguments, AnotherDevice) {
  DLTensor tensor = a_.to_dlpack();
  tensor.device = {kDLCUDA, 0};
  expect_error(gemm(TensorView::from_dlpack(tensor).value(), b_, output_), StatusCode::kTypeError, "a: expected a");
}

TEST_F(GemmArguments, OutputOverlapsAnInput) {
  expect_error(gemm(a_, b_, view(memory_.data() + 5, 2, 4)), StatusCode::kInvalidArgument, "overlaps a");
  expect_error(gemm(a_, b_, view(memory_.data() + 105, 2, 4)), StatusCode::kInvalidArgument, "overlaps b");
  GemmOptions options;
  options.residual = &output_;
  expect_error(gemm(a_, b_, output_, options), StatusCode::kInvalidArgument, "overlaps residual");
}

TEST_F(GemmArguments, SlicesOfOneMatrixDoNotOverlap) {
  const auto a = TensorView::strided(memory_.data(), DType::kFloat32, Shape{2, 3}, Shape{7, 1}).value();
  const auto output = TensorView::strided(memory_.data() + 3, DType::kFloat32, Shape{2, 4}, Shape{7, 1}).value();
  EXPECT_TRUE(gemm(a, b_, output).ok());
  const auto shifted = TensorView::strided(memory_.data() + 2, DType::kFloat32, Shape{2, 4}, Shape{7, 1}).value();
  expect_error(gemm(a, b_, shifted), StatusCode::kInvalidArgument, "overlaps a");
  const auto wrapped = TensorView::strided(memory_.data() + 4, DType::kFloat32, Shape{2, 4}, Shape{7, 1}).value();
  expect_error(gemm(a, b_, wrapped), StatusCode::kInvalidArgument, "overlaps a");
}

TEST_F(GemmArguments, OutputThatSharesElements) {
  const auto output = TensorView::strided(memory_.data() + 200, DType::kFloat32, Shape{2, 4}, Shape{0, 1}).value();
  expect_error(gemm(a_, b_, output), StatusCode::kInvalidArgument, "output: the strides of float32[2, 4] let");
  const auto rows_meet = TensorView::strided(memory_.data() + 200, DType::kFloat32, Shape{2, 4}, Shape{3, 1}).value();
  expect_error(gemm(a_, b_, rows_meet), StatusCode::kInvalidArgument, "let elements share memory");
}

TEST_F(GemmArguments, StridesBeyondTheAddressSpace) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  for (const int64_t stride : {kLargest, kLargest - 2, kLargest / 4, -kLargest}) {
    const auto a = TensorView::strided(memory_.data(), DType::kFloat32, Shape{2, 3}, Shape{stride, 1}).value();
    expect_error(gemm(a, b_, output_), StatusCode::kInvalidArgument, "a: the strides of float32[2, 3] reach beyond");
  }
}

TEST_F(GemmArguments, WrongBiasAndResidual) {
  const auto bias = TensorView::contiguous(memory_.data(), DType::kFloat32, std::array<int64_t, 1>{3}).value();
  GemmOptions options;
  options.bias = &bias;
  expect_error(gemm(a_, b_, output_, options), StatusCode::kInvalidArgument, "bias: expected [4], got float32[3]");
  options.bias = nullptr;
  options.residual = &b_;
  expect_error(gemm(a_, b_, output_, options), StatusCode::kInvalidArgument, "residual: expected the shape of output");
}

TEST_F(GemmArguments, NullPackedMatrix) {
  expect_error(gemm(a_, PackedMatrix{nullptr, 3, 4}, output_), StatusCode::kInvalidArgument, "b: null data");
}

TEST_F(GemmArguments, UnknownActivation) {
  GemmOptions options;
  options.activation = static_cast<Activation>(99);
  expect_error(gemm(a_, b_, output_, options), StatusCode::kInvalidArgument, "activation");
  expect_error(activation_from_name("swish").status(), StatusCode::kInvalidArgument, "got \"swish\"");
  EXPECT_EQ(activation_from_name("gelu_tanh").value(), Activation::kGeluTanh);
}

TEST_F(GemmArguments, PackedSizeIsPaddedAndChecked) {
  EXPECT_EQ(packed_matrix_size(3, 17).value(), 3 * 32);
  EXPECT_EQ(packed_matrix_size(0, 17).value(), 0);
  EXPECT_EQ(packed_matrix_size(3, 0).value(), 0);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 4;
  expect_error(packed_matrix_size(kHuge, 17).status(), StatusCode::kInvalidArgument, "overflows");
  expect_error(packed_matrix_size(1, std::numeric_limits<int64_t>::max()).status(), StatusCode::kInvalidArgument,
               "overflows");
  expect_error(packed_matrix_size(-1, 4).status(), StatusCode::kInvalidArgument, "must not be negative");
}

// Its columns take no memory, so any number may come; walking over them would take hours.
TEST_F(GemmArguments, PackingNothingTakesNoTime) {
  const Result<PackedMatrix> packed = pack_b(view(memory_.data(), 0, int64_t{1} << 44), {});
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed.value().columns, int64_t{1} << 44);
}

TEST_F(GemmArguments, PackingNeedsRoomOfItsOwn) {
  std::vector<float> storage(3 * 16 - 1);
  expect_error(pack_b(b_, storage).status(), StatusCode::kInvalidArgument, "storage: expected 48 floats");
  expect_error(pack_b(b_, std::span(memory_).subspan(60, 48)).status(), StatusCode::kInvalidArgument,
               "storage: overlaps b");
}

TEST_F(GemmArguments, PanelsHoldSixteenColumnsAndZeros) {
  std::vector<float> b{1.0f, 2.0f, 3.0f, 4.0f};
  std::vector<float> storage(32, 9.0f);
  ASSERT_TRUE(pack_b(view(b.data(), 2, 2), storage).ok());
  std::vector<float> expected(32, 0.0f);
  expected[0] = 1.0f;
  expected[1] = 2.0f;
  expected[16] = 3.0f;
  expected[17] = 4.0f;
  EXPECT_EQ(storage, expected);
}

}  // namespace
}  // namespace qx::kernels
