#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "kernels/random_values.h"
#include "quincunx/kernels/attention/decode_attention.h"
#include "sanitizers.h"

namespace qx::kernels {
namespace {

class DecodeBadInput : public testing::Test {
 protected:
  std::vector<float> memory_[4] = {std::vector<float>(4096), std::vector<float>(4096), std::vector<float>(4096),
                                   std::vector<float>(4096)};
  std::vector<int32_t> table_memory_ = {0, 1, 2, 1};
  std::vector<int64_t> lengths_ = {6, 3};
  TensorView query_ = f32_view(memory_[0], {2, 4, 1, 8});
  TensorView output_ = f32_view(memory_[3], {2, 4, 1, 3});
  TensorView keys_ = f32_view(memory_[1], {2, 2, 6, 8});
  TensorView values_ = f32_view(memory_[2], {2, 2, 6, 3});
  PagedCache pages_ = {f32_view(memory_[1], {3, 2, 4, 8}), f32_view(memory_[2], {3, 2, 4, 3}),
                       contiguous_view(table_memory_.data(), DType::kInt32, {2, 2})};
  DecodeAttentionOptions options_ = {.key_lengths = lengths_};

  std::string message() { return decode_attention(query_, keys_, values_, options_, output_).message(); }
  std::string paged_message() { return paged_decode_attention(query_, pages_, options_, output_).message(); }
};

TEST_F(DecodeBadInput, StartsFromGoodCalls) {
  EXPECT_EQ(message(), "");
  EXPECT_EQ(paged_message(), "");
}

TEST_F(DecodeBadInput, NamesDtypes) {
  values_ = contiguous_view(memory_[2].data(), DType::kBFloat16, {2, 2, 6, 3});
  EXPECT_EQ(message(), "values: expected the dtype of keys, float32, got bfloat16[2, 2, 6, 3]");
  keys_ = contiguous_view(memory_[1].data(), DType::kInt8, {2, 2, 6, 8});
  EXPECT_EQ(message(), "keys: expected float32, bfloat16 or float16, got int8[2, 2, 6, 8]");
  output_ = contiguous_view(memory_[3].data(), DType::kFloat16, {2, 4, 1, 3});
  EXPECT_EQ(paged_message(), "output: expected the dtype of query, float32, got float16[2, 4, 1, 3]");
}

TEST_F(DecodeBadInput, NamesShapes) {
  keys_ = f32_view(memory_[1], {2, 2, 6, 7});
  EXPECT_EQ(message(), "keys: expected the batch and head size of query float32[2, 4, 1, 8], got float32[2, 2, 6, 7]");
  keys_ = f32_view(memory_[1], {2, 2, 8});
  EXPECT_EQ(message(), "keys: expected 4 dimensions, got float32[2, 2, 8]");
  pages_.keys = f32_view(memory_[1], {3, 3, 4, 8});
  EXPECT_EQ(paged_message(),
            "keys: expected a number of heads (dimension 1) that divides that of query float32[2, 4, 1, 8], got "
            "float32[3, 3, 4, 8]");
  pages_.keys = f32_view(memory_[1], {3, 2, 0, 8});
  EXPECT_EQ(paged_message(), "keys: expected pages of one token at least, got float32[3, 2, 0, 8]");
  pages_.keys = f32_view(memory_[1], {3, 2, 5, 8});
  EXPECT_EQ(paged_message(),
            "values: expected the pages, heads and page size of keys float32[3, 2, 5, 8], got float32[3, 2, 4, 3]");
  pages_.keys = f32_view(memory_[1], {3, 2, 4, 8});
  output_ = f32_view(memory_[3], {2, 4, 1, 8});
  EXPECT_EQ(paged_message(),
            "output: expected the batch, heads and length of query float32[2, 4, 1, 8] and the head size of values "
            "float32[3, 2, 4, 3], got float32[2, 4, 1, 8]");
}

TEST_F(DecodeBadInput, NamesLengthsAndScale) {
  lengths_[1] = 7;
  EXPECT_EQ(message(), "key_lengths[1]: expected 0 to the 6 keys, got 7");
  lengths_[1] = 9;
  EXPECT_EQ(paged_message(), "key_lengths[1]: expected 0 to the 8 keys, got 9");
  options_.key_lengths = {};
  EXPECT_EQ(message(), "");
  EXPECT_EQ(paged_message(), "key_lengths: expected one for each of the 2 batch items of a paged cache, got none");
  options_.scale = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message(), "scale: expected a finite number, got inf");
}

TEST_F(DecodeBadInput, NamesTableEntries) {
  table_memory_[1] = 3;
  EXPECT_EQ(paged_message(), "block_table[0, 1]: expected one of the 3 pages, got 3");
  table_memory_[1] = -1;
  EXPECT_EQ(paged_message(), "block_table[0, 1]: expected one of the 3 pages, got -1");
  table_memory_[1] = 1;
  table_memory_[3] = 77;
  EXPECT_EQ(paged_message(), "") << "the last page of item 1 is not needed";
  pages_.block_table = contiguous_view(table_memory_.data(), DType::kInt32, {1, 2});
  EXPECT_EQ(paged_message(), "block_table: expected a row for each of the 2 batch items, got int32[1, 2]");
  pages_.block_table = contiguous_view(table_memory_.data(), DType::kFloat32, {2, 2});
  EXPECT_EQ(paged_message(), "block_table: expected int32 or int64, got float32[2, 2]");
}

TEST_F(DecodeBadInput, NamesMemory) {
  output_ = f32_view(memory_[2], {2, 4, 1, 3});
  EXPECT_EQ(paged_message(),
            "output: overlaps values without being the same tensor (float32[2, 4, 1, 3] and float32[3, 2, 4, 3])");
  output_ = f32_view(memory_[3], {2, 4, 1, 3});
  options_.log_sum_exp = f32_view(memory_[3], {2, 4, 1});
  EXPECT_EQ(paged_message(),
            "log_sum_exp: overlaps output without being the same tensor (float32[2, 4, 1] and float32[2, 4, 1, 3])");
  options_.log_sum_exp = f32_view(memory_[3], {2, 4, 2});
  EXPECT_EQ(paged_message(),
            "log_sum_exp: expected the batch, heads and length of query float32[2, 4, 1, 8], got float32[2, 4, 2]");
}

TEST_F(DecodeBadInput, ReportsResultsThatDoNotFitMemory) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "a sanitizer ends the program instead";
  constexpr int64_t kKeys = int64_t{1} << 50;
  keys_ = strided_view(memory_[1].data(), DType::kFloat32, {2, 2, kKeys, 8}, {0, 0, 0, 1});
  values_ = strided_view(memory_[2].data(), DType::kFloat32, {2, 2, kKeys, 3}, {0, 0, 0, 1});
  options_.key_lengths = {};
  EXPECT_EQ(decode_attention(query_, keys_, values_, options_, output_).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace qx::kernels
