#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/random_values.h"
#include "quincunx/kernels/attention/attention.h"
#include "sanitizers.h"

namespace qx::kernels {
namespace {

class AttentionBadInput : public testing::Test {
 protected:
  std::vector<float> memory_[4] = {std::vector<float>(4096), std::vector<float>(4096), std::vector<float>(4096),
                                   std::vector<float>(4096)};
  TensorView query_ = f32_view(memory_[0], {2, 4, 5, 8});
  TensorView key_ = f32_view(memory_[1], {2, 2, 6, 8});
  TensorView value_ = f32_view(memory_[2], {2, 2, 6, 3});
  TensorView output_ = f32_view(memory_[3], {2, 4, 5, 3});
  AttentionOptions options_;

  std::string message() { return attention(query_, key_, value_, options_, output_).message(); }
};

TEST_F(AttentionBadInput, StartsFromAGoodCall) { EXPECT_EQ(message(), ""); }

TEST_F(AttentionBadInput, NamesRankAndDtype) {
  query_ = f32_view(memory_[0], {4, 5, 8});
  EXPECT_EQ(message(), "query: expected 4 dimensions, got float32[4, 5, 8]");
  query_ = contiguous_view(memory_[0].data(), DType::kBFloat16, {2, 4, 5, 8});
  EXPECT_EQ(message(), "key: expected the dtype of query, bfloat16, got float32[2, 2, 6, 8]");
}

TEST_F(AttentionBadInput, NamesHeadSizes) {
  query_ = f32_view(memory_[0], {1, 1, 1, 257});
  EXPECT_EQ(message(), "query: expected a head size (last dimension) of 1 to 256, got float32[1, 1, 1, 257]");
  query_ = f32_view(memory_[0], {2, 4, 5, 8});
  value_ = f32_view(memory_[2], {2, 2, 6, 0});
  EXPECT_EQ(message(), "value: expected a head size (last dimension) of 1 to 256, got float32[2, 2, 6, 0]");
}

TEST_F(AttentionBadInput, NamesMismatchedShapes) {
  key_ = f32_view(memory_[1], {2, 2, 6, 7});
  EXPECT_EQ(message(), "key: expected the batch and head size of query float32[2, 4, 5, 8], got float32[2, 2, 6, 7]");
  key_ = f32_view(memory_[1], {2, 3, 6, 8});
  EXPECT_EQ(message(),
            "key: expected a number of heads (dimension 1) that divides that of query float32[2, 4, 5, 8], got "
            "float32[2, 3, 6, 8]");
  key_ = f32_view(memory_[1], {2, 2, 7, 8});
  EXPECT_EQ(message(),
            "value: expected the batch, heads and length of key float32[2, 2, 7, 8], got float32[2, 2, 6, 3]");
  key_ = f32_view(memory_[1], {2, 2, 6, 8});
  output_ = f32_view(memory_[3], {2, 4, 5, 8});
  EXPECT_EQ(message(),
            "output: expected the batch, heads and length of query float32[2, 4, 5, 8] and the head size of value "
            "float32[2, 2, 6, 3], got float32[2, 4, 5, 8]");
}

TEST_F(AttentionBadInput, NamesOptions) {
  options_.scale = std::nanf("");
  EXPECT_EQ(message(), "scale: expected a finite number, got nan");
  options_.scale.reset();
  const std::vector<int64_t> too_few = {3}, too_long = {3, 7}, negative = {-1, 3};
  options_.key_lengths = too_few;
  EXPECT_EQ(message(), "key_lengths: expected one for each of the 2 batch items, got 1");
  options_.key_lengths = too_long;
  EXPECT_EQ(message(), "key_lengths[1]: expected 0 to the 6 keys, got 7");
  options_.key_lengths = negative;
  EXPECT_EQ(message(), "key_lengths[0]: expected 0 to the 6 keys, got -1");
  options_.key_lengths = {};
  std::vector<float> lse(40);
  options_.log_sum_exp = f32_view(lse, {2, 5, 4});
  EXPECT_EQ(message(),
            "log_sum_exp: expected the batch, heads and length of query float32[2, 4, 5, 8], got float32[2, 5, 4]");
}

TEST_F(AttentionBadInput, NamesOverlappingOutputs) {
  output_ = f32_view(memory_[2], {2, 4, 5, 3});
  EXPECT_EQ(message(),
            "output: overlaps value without being the same tensor (float32[2, 4, 5, 3] and float32[2, 2, 6, 3])");
  value_ = f32_view(memory_[2], {2, 2, 6, 8});
  output_ = query_;
  EXPECT_EQ(message(), "output: is the same memory as query");
  output_ = strided_view(memory_[3].data(), DType::kFloat32, {2, 4, 5, 8}, {0, 40, 8, 1});
  EXPECT_EQ(message(), "output: dimension 0 of float32[2, 4, 5, 8] has stride 0: its elements share memory");
  output_ = f32_view(memory_[3], {2, 4, 5, 8});
  options_.log_sum_exp = f32_view(memory_[3], {2, 4, 5});
  EXPECT_EQ(message(),
            "log_sum_exp: overlaps output without being the same tensor (float32[2, 4, 5] and float32[2, 4, 5, 8])");
}

TEST_F(AttentionBadInput, ReportsKeysThatDoNotFitMemory) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "a sanitizer ends the program instead";
  constexpr int64_t kKeys = int64_t{1} << 45;  // 2 PiB packed
  key_ = strided_view(memory_[1].data(), DType::kFloat32, {2, 2, kKeys, 8}, {0, 0, 0, 1});
  value_ = strided_view(memory_[2].data(), DType::kFloat32, {2, 2, kKeys, 3}, {0, 0, 0, 1});
  EXPECT_EQ(attention(query_, key_, value_, options_, output_).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace qx::kernels
