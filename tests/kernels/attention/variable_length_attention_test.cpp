// Sequences packed one after another, and half precision.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/attention/attention.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr int64_t kHeads = 4, kKeyHeads = 2, kDim = 10, kValueDim = 7;

// Tensors [S, heads, width] of sequences of several lengths.
struct Packed {
  std::vector<int64_t> query_starts = {0, 5, 5, 105, 106}, key_starts = {0, 9, 12, 162, 162};
  std::vector<float> query = normal_values(106 * kHeads * kDim, 1), key = normal_values(162 * kKeyHeads * kDim, 2),
                     value = normal_values(162 * kKeyHeads * kValueDim, 3),
                     output = std::vector<float>(106 * kHeads * kValueDim, 99), lse = std::vector<float>(kHeads * 106);
  bool causal = false;

  TensorView query_view() { return f32_view(query, {106, kHeads, kDim}); }
  TensorView key_view() { return f32_view(key, {162, kKeyHeads, kDim}); }
  TensorView value_view() { return f32_view(value, {162, kKeyHeads, kValueDim}); }
  TensorView output_view() { return f32_view(output, {106, kHeads, kValueDim}); }
  Status run() {
    VariableLengthOptions options;
    options.causal = causal;
    options.query_starts = query_starts;
    options.key_starts = key_starts;
    options.log_sum_exp = f32_view(lse, {kHeads, 106});
    return variable_length_attention(query_view(), key_view(), value_view(), options, output_view());
  }
};

// The rows [first, last) of a [S, heads, width] tensor as [1, heads, S, width].
TensorView part(std::vector<float>& memory, int64_t first, int64_t last, int64_t heads, int64_t width) {
  return strided_view(memory.data() + first * heads * width, DType::kFloat32, {1, heads, last - first, width},
                      {0, width, heads * width, 1});
}

TEST(VariableLengthAttention, GivesEachSequenceTheBitsThatItHasAlone) {
  for_each_dispatch_target([] {
    for (const bool causal : {false, true}) {
      Packed t;
      t.causal = causal;
      const Status status = t.run();
      ASSERT_TRUE(status.ok()) << status;
      for (size_t i = 0; i + 1 < t.query_starts.size(); ++i) {
        const int64_t first = t.query_starts[i], last = t.query_starts[i + 1];
        const int64_t first_key = t.key_starts[i], last_key = t.key_starts[i + 1];
        std::vector<float> output(static_cast<size_t>((last - first) * kHeads * kValueDim));
        std::vector<float> lse(static_cast<size_t>((last - first) * kHeads));
        AttentionOptions options;
        options.causal = causal;
        options.log_sum_exp = f32_view(lse, {1, kHeads, last - first});
        ASSERT_TRUE(attention(part(t.query, first, last, kHeads, kDim),
                              part(t.key, first_key, last_key, kKeyHeads, kDim),
                              part(t.value, first_key, last_key, kKeyHeads, kValueDim), options,
                              part(output, 0, last - first, kHeads, kValueDim))
                        .ok());
        for (size_t j = 0; j < output.size(); ++j) {
          ASSERT_EQ(t.output[static_cast<size_t>(first * kHeads * kValueDim) + j], output[j]) << "sequence " << i;
        }
        for (int64_t head = 0; head < kHeads; ++head) {
          for (int64_t row = 0; row < last - first; ++row) {
            ASSERT_EQ(t.lse[static_cast<size_t>(head * 106 + first + row)],
                      lse[static_cast<size_t>(head * (last - first) + row)]);
          }
        }
      }
    }
  });
}

TEST(VariableLengthAttention, GivesTheSameBitsForAnyNumberOfThreads) {
  Packed one, many;
  set_num_threads(1);
  ASSERT_TRUE(one.run().ok());
  set_num_threads(3);
  ASSERT_TRUE(many.run().ok());
  set_num_threads(0);
  EXPECT_EQ(one.output, many.output);
  EXPECT_EQ(one.lse, many.lse);
}

TEST(VariableLengthAttention, NamesBadStarts) {
  Packed t;
  t.query_starts = {0, 5, 4, 105, 106};
  EXPECT_EQ(t.run().message(), "query_starts[2]: expected 5 or more, the start before it, got 4");
  t.query_starts = {};
  EXPECT_EQ(t.run().message(),
            "query_starts: expected numbers from 0 to the 106 rows of the packed tensor, got 0 "
            "numbers");
  t.query_starts = {0, 106};
  EXPECT_EQ(t.run().message(), "key_starts: expected as many numbers as query_starts, 2, got 5");
  t.key_starts = {0, 163};
  EXPECT_EQ(t.run().message(),
            "key_starts: expected numbers from 0 to the 162 rows of the packed tensor, got 2 "
            "numbers from 0 to 163");
}

TEST(VariableLengthAttention, NamesBadTensors) {
  Packed t;
  const VariableLengthOptions options{.query_starts = t.query_starts, .key_starts = t.key_starts};
  EXPECT_EQ(variable_length_attention(f32_view(t.query, {106, kHeads * kDim}), t.key_view(), t.value_view(), options,
                                      t.output_view())
                .message(),
            "query: expected 3 dimensions, got float32[106, 40]");
  EXPECT_EQ(variable_length_attention(t.query_view(), t.key_view(), t.value_view(), options, t.query_view()).message(),
            "output: expected the batch, heads and length of query float32[1, 4, 106, 10] and the head size of value "
            "float32[1, 2, 162, 7], got float32[1, 4, 106, 10]");
}

TEST(AttentionOfHalves, IsTheFloatResultRoundedOnce) {
  constexpr int64_t kQueries = 100, kKeys = 150;
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<std::vector<uint16_t>> half = {
          narrowed(normal_values(kQueries * kDim, 1), dtype), narrowed(normal_values(kKeys * kDim, 2), dtype),
          narrowed(normal_values(kKeys * kDim, 3), dtype), std::vector<uint16_t>(kQueries * kDim)};
      std::vector<std::vector<float>> wide;
      std::vector<TensorView> halves, floats;
      for (auto& h : half) {
        wide.push_back(widened(h, dtype));
        const auto length = static_cast<int64_t>(h.size()) / kDim;
        halves.push_back(contiguous_view(h.data(), dtype, {1, 1, length, kDim}));
        floats.push_back(f32_view(wide.back(), {1, 1, length, kDim}));
      }
      ASSERT_TRUE(attention(halves[0], halves[1], halves[2], {}, halves[3]).ok());
      ASSERT_TRUE(attention(floats[0], floats[1], floats[2], {}, floats[3]).ok());
      EXPECT_EQ(half[3], narrowed({floats[3].data_as<float>(), floats[3].data_as<float>() + kQueries * kDim}, dtype));
    }
  });
}

}  // namespace
}  // namespace qx::kernels
