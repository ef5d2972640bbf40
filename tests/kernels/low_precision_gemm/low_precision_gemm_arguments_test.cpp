// Bad input to pack_weight, unpack_weight and low_precision_gemm: each error names the argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/random_values.h"
#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

void expect_error(const Status& status, StatusCode code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(part));
}
void expect_invalid(const Status& status, std::string_view part) {
  expect_error(status, StatusCode::kInvalidArgument, part);
}

class LowPrecisionGemmArguments : public ::testing::Test {
 protected:
  TensorView view(int64_t offset, const std::vector<int64_t>& shape) {
    return contiguous_view(memory_.data() + offset, DType::kFloat32, shape);
  }
  PackedWeight packed(WeightFormat format) { return pack_weight(view(100, {3, 4}), format, storage_).value(); }

  std::vector<float> memory_ = std::vector<float>(1000, 1.0f);
  std::vector<uint8_t> storage_ = std::vector<uint8_t>(1024);
  TensorView a_ = view(0, {2, 3});
  TensorView output_ = view(200, {2, 4});
  PackedWeight weight_ = packed(WeightFormat::kInt8);
};

TEST_F(LowPrecisionGemmArguments, MismatchedSizes) {
  expect_invalid(low_precision_gemm(view(0, {2, 5}), weight_, output_),
                 "a: expected 3 columns, the rows of weight, got float32[2, 5]");
  expect_invalid(low_precision_gemm(a_, weight_, view(200, {2, 5})), "output: expected [2, 4], got float32[2, 5]");
  expect_invalid(low_precision_gemm(view(0, {3}), weight_, output_), "a: expected 2 dimensions");
  expect_invalid(low_precision_gemm(a_, weight_, view(200, {8})), "output: expected 2 dimensions");
}

TEST_F(LowPrecisionGemmArguments, UnsupportedTypes) {
  const TensorView doubles = contiguous_view(memory_.data(), DType::kFloat64, {2, 3});
  expect_error(low_precision_gemm(doubles, weight_, output_), StatusCode::kTypeError,
               "a: expected float32, bfloat16 or float16, got float64[2, 3]");
  const TensorView integers = contiguous_view(memory_.data() + 200, DType::kInt32, {2, 4});
  expect_error(low_precision_gemm(a_, weight_, integers), StatusCode::kTypeError, "output: expected float32");
  expect_error(pack_weight(doubles, WeightFormat::kInt8, storage_).status(), StatusCode::kTypeError,
               "weight: expected");
  expect_error(unpack_weight(weight_, contiguous_view(memory_.data(), DType::kBFloat16, {3, 4})),
               StatusCode::kTypeError, "output: expected float32");
}

TEST_F(LowPrecisionGemmArguments, NullData) {
  expect_invalid(low_precision_gemm(a_, {nullptr, 3, 4, WeightFormat::kInt8}, output_), "weight: null data");
  expect_invalid(unpack_weight({nullptr, 3, 4, WeightFormat::kInt8}, view(0, {3, 4})), "weight: null data");
}

TEST_F(LowPrecisionGemmArguments, OverlappingMemory) {
  expect_invalid(low_precision_gemm(a_, weight_, view(5, {2, 4})), "overlaps a");
  PackedWeight in_memory = weight_;
  in_memory.data = reinterpret_cast<const uint8_t*>(memory_.data() + 190);
  expect_invalid(low_precision_gemm(a_, in_memory, output_), "overlaps weight");
  LowPrecisionOptions options;
  options.residual = &output_;
  expect_invalid(low_precision_gemm(a_, weight_, output_, options), "overlaps residual");
  const TensorView shared = strided_view(memory_.data() + 200, DType::kFloat32, {2, 4}, {0, 1});
  expect_invalid(low_precision_gemm(a_, weight_, shared), "let elements share memory");
  const std::span<uint8_t> on_weight(reinterpret_cast<uint8_t*>(memory_.data() + 101), 1024);
  expect_invalid(pack_weight(view(100, {3, 4}), WeightFormat::kInt8, on_weight).status(), "overlaps weight");
}

TEST_F(LowPrecisionGemmArguments, StridesBeyondTheAddressSpace) {
  for (const int64_t stride : {kLargest, kLargest / 4, -kLargest}) {
    const TensorView a = strided_view(memory_.data(), DType::kFloat32, {2, 3}, {stride, 1});
    expect_invalid(low_precision_gemm(a, weight_, output_), "a: the strides of float32[2, 3] reach beyond 64 bits");
  }
}

TEST_F(LowPrecisionGemmArguments, BiasAndResidualOfOtherShapes) {
  const TensorView bias = view(300, {3});
  LowPrecisionOptions options;
  options.bias = &bias;
  expect_invalid(low_precision_gemm(a_, weight_, output_, options), "bias: expected one dimension of 4 elements");
  const TensorView residual = view(300, {4, 2});
  options.bias = nullptr;
  options.residual = &residual;
  expect_invalid(low_precision_gemm(a_, weight_, output_, options), "residual: expected the shape of output");
}

TEST_F(LowPrecisionGemmArguments, QuantizationThatTheFormatDoesNotHave) {
  LowPrecisionOptions options;
  options.input = InputQuantization::kDynamic;
  std::vector<uint8_t> storage(1024);
  const PackedWeight halves = pack_weight(view(100, {3, 4}), WeightFormat::kBFloat16, storage).value();
  expect_invalid(low_precision_gemm(a_, halves, output_, options), "input: expected kNone for bfloat16 weights");
  options.input = InputQuantization::kStatic;
  const PackedWeight grouped = pack_weight(view(100, {3, 4}), WeightFormat::kInt4Grouped, storage).value();
  expect_invalid(low_precision_gemm(a_, grouped, output_, options), "input: kStatic expects int8 weights, got int4");
  options.input = static_cast<InputQuantization>(9);
  expect_invalid(low_precision_gemm(a_, weight_, output_, options), "input: expected a value of the enumeration");
}

TEST_F(LowPrecisionGemmArguments, StaticParametersOutOfRange) {
  LowPrecisionOptions options;
  options.input = InputQuantization::kStatic;
  for (const float scale :
       {0.0f, -1.0f, 1e-45f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    options.input_scale = scale;
    expect_invalid(low_precision_gemm(a_, weight_, output_, options), "input_scale: expected a positive finite");
  }
  options.input_scale = 1.0f;
  for (const int32_t zero_point : {-129, 128}) {
    options.input_zero_point = zero_point;
    expect_invalid(low_precision_gemm(a_, weight_, output_, options), "input_zero_point: expected a value in [-128");
  }
}

TEST_F(LowPrecisionGemmArguments, UnknownNamesAndValues) {
  expect_invalid(weight_format_from_name("int2").status(), "format: expected \"bfloat16\"");
  EXPECT_EQ(weight_format_from_name("int4_grouped").value(), WeightFormat::kInt4Grouped);
  expect_invalid(input_quantization_from_name("exact").status(), "input: expected \"none\"");
  EXPECT_EQ(input_quantization_from_name("static").value(), InputQuantization::kStatic);
  expect_invalid(packed_weight_size_bytes(static_cast<WeightFormat>(9), 1, 1).status(), "format: expected");
  LowPrecisionOptions options;
  options.activation = static_cast<Activation>(99);
  expect_invalid(low_precision_gemm(a_, weight_, output_, options), "activation: expected");
}

TEST_F(LowPrecisionGemmArguments, SizesThatOverflow) {
  const auto size = [](int64_t inner, int64_t columns) {
    return packed_weight_size_bytes(WeightFormat::kInt4Grouped, inner, columns).status();
  };
  expect_invalid(size(kLargest / 16, 17), "overflows");
  expect_invalid(size(1, kLargest), "overflows");
  expect_invalid(size(-1, 4), "must not be negative");
  expect_invalid(low_precision_gemm(a_, {storage_.data(), kLargest, 4, WeightFormat::kInt8}, output_), "overflows");
}

TEST_F(LowPrecisionGemmArguments, StorageThatIsTooSmall) {
  std::vector<uint8_t> storage(191);
  expect_invalid(pack_weight(view(100, {3, 4}), WeightFormat::kInt8, storage).status(),
                 "storage: expected 192 bytes for float32[3, 4] in int8, got 191");
}

TEST_F(LowPrecisionGemmArguments, WeightsThatTheFormatCannotHold) {
  memory_[100 + 6] = std::numeric_limits<float>::quiet_NaN();
  expect_invalid(pack_weight(view(100, {3, 4}), WeightFormat::kInt8, storage_).status(),
                 "weight: column 2 holds NaN; int8 expects finite values");
  memory_[100 + 6] = -std::numeric_limits<float>::infinity();
  expect_invalid(pack_weight(view(100, {3, 4}), WeightFormat::kInt4Grouped, storage_).status(),
                 "weight: column 2 holds an infinity");
  memory_[100 + 6] = 1e6f;
  expect_invalid(pack_weight(view(100, {3, 4}), WeightFormat::kInt4Grouped, storage_).status(),
                 "weight: column 2 holds a magnitude of 1000000.000000; int4_grouped expects at most 458528");
  EXPECT_TRUE(pack_weight(view(100, {3, 4}), WeightFormat::kInt8, storage_).ok());
}

}  // namespace
}  // namespace qx::kernels
