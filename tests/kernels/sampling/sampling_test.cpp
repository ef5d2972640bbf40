#include "quincunx/kernels/sampling/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/sampling/philox.h"
#include "quincunx/kernels/sampling/sampling_reference.h"
#include "quincunx/kernels/sampling/sampling_weights.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int64_t> draw(std::vector<float>& logits, int64_t rows, const SamplingOptions& options) {
  std::vector<int64_t> tokens(static_cast<size_t>(rows), -9);
  const auto vocabulary = static_cast<int64_t>(logits.size()) / rows;
  const Status status =
      sample(f32_view(logits, {rows, vocabulary}), options, contiguous_view(tokens.data(), DType::kInt64, {rows}));
  EXPECT_TRUE(status.ok()) << status;
  return tokens;
}

TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(uniform_at(0, 0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  EXPECT_NE(uniform_at(0, 1, 0), uniform_at(0, 0, 1));
}

TEST(Weights, AreWithinTwoUlpAndTheSameOnEveryInstructionSet) {
  std::vector<float> x;
  for (int i = 0; i < 5003; ++i) x.push_back(-0.0199f * static_cast<float>(i));
  std::vector<float> portable;
  for_each_dispatch_target([&] {
    std::vector<float> weights(x.size()), sums(5);
    fill_weights(x, 0, 1, weights, sums);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      if (x[i] < -87) {
        ASSERT_EQ(weights[i], 0);
      } else {
        ASSERT_LE(std::abs(weights[i] - exact), 2 * std::ldexp(1.0, std::ilogb(exact) - 23)) << x[i];
      }
    }
    weights.insert(weights.end(), sums.begin(), sums.end());
    if (portable.empty()) portable = weights;
    EXPECT_EQ(weights, portable);
  });
}

TEST(Sample, TakesTheLowestOfTheMostLikelyTokensAtTemperatureZero) {
  for_each_dispatch_target([] {
    std::vector<float> x(100, -1), history_free = {-kInfinity, -kInfinity, 3, kInfinity};
    x[40] = x[77] = 2.5f;
    EXPECT_EQ(draw(x, 1, {.temperature = 0}), (std::vector<int64_t>{40}));
    EXPECT_EQ(draw(history_free, 1, {.temperature = 1}), (std::vector<int64_t>{3}));
    std::vector<float> one = {-5};
    EXPECT_EQ(draw(one, 1, {}), (std::vector<int64_t>{0}));
  });
}

// The documented draw, from exact probabilities; -1 where the number lies so near a border that rounding may decide.
int64_t expected_token(const std::vector<TokenProbability>& tokens, double u) {
  double sum = 0;
  for (const TokenProbability& token : tokens) {
    sum += token.probability;
    if (std::abs(sum - u) < 1e-5) return -1;
    if (sum > u) return token.token;
  }
  return -1;
}

TEST(Sample, DrawsAsDocumentedUnderEveryOption) {
  std::vector<SamplingOptions> all(9);
  all[1].temperature = 0.5;
  all[2].top_k = 5;
  all[3].top_p = 0.7;
  all[4].min_p = 0.2;
  all[5] = {.temperature = 2, .top_k = 40, .top_p = 0.9, .min_p = 0.05};
  all[6] = {.repetition_penalty = 1.7, .top_k = 10};
  all[7].top_k = 100'000;
  all[8] = {.temperature = 3, .top_p = 0.999};
  constexpr int64_t kRows = 40;
  for_each_dispatch_target([&] {
    for (const int64_t vocabulary : {3, 50, 1500}) {
      std::vector<float> x = normal_values(kRows * vocabulary, 1, 0, 2);
      std::vector<int64_t> history;
      for (int64_t i = 0; i < kRows * 4; ++i) history.push_back(i % 4 == 3 ? -1 : (i * 31) % vocabulary);
      int checked = 0;
      for (size_t k = 0; k < all.size(); ++k) {
        SamplingOptions options = all[k];
        options.seed = 1234 + k;
        options.step = 77;
        if (options.repetition_penalty != 1) {
          options.history = contiguous_view(history.data(), DType::kInt64, {kRows, 4});
        }
        const std::vector<int64_t> tokens = draw(x, kRows, options);
        for (int64_t r = 0; r < kRows; ++r) {
          const std::span<const float> row(x.data() + r * vocabulary, static_cast<size_t>(vocabulary));
          const std::span<const int64_t> seen(history.data() + r * 4, options.history ? 4 : 0);
          auto kept = kept_tokens_reference(row, seen, options);
          const bool by_number =
              options.top_p == 1 && options.min_p == 0 && (options.top_k == 0 || options.top_k >= vocabulary);
          if (by_number) std::ranges::sort(kept, {}, &TokenProbability::token);
          const double u = uniform_at(options.seed, static_cast<uint64_t>(r), options.step);
          const int64_t expected = expected_token(kept, u);
          if (expected < 0) continue;
          ++checked;
          ASSERT_EQ(tokens[static_cast<size_t>(r)], expected) << "options " << k << " row " << r;
        }
      }
      EXPECT_GT(checked, 300);
    }
  });
}

TEST(Sample, DrawsEachTokenAsOftenAsItIsLikely) {
  constexpr int64_t kRows = 20'000;
  std::vector<float> x;
  for (int64_t r = 0; r < kRows; ++r) x.insert(x.end(), {0.0f, std::log(2.0f), std::log(5.0f)});
  std::vector<int> counts(3);
  for (const int64_t token : draw(x, kRows, {.seed = 5})) ++counts[static_cast<size_t>(token)];
  const double expected[] = {1.0 / 8, 2.0 / 8, 5.0 / 8};
  for (size_t i = 0; i < 3; ++i) {
    // Four standard deviations of a binomial count; seed and step are fixed, so that this never varies.
    const double deviation = std::sqrt(kRows * expected[i] * (1 - expected[i]));
    EXPECT_NEAR(counts[i], kRows * expected[i], 4 * deviation);
  }
}

TEST(Sample, SeedAndStepDecideAndThreadsDoNot) {
  std::vector<float> x = normal_values(64 * 300, 2);
  const SamplingOptions options{.top_p = 0.95, .seed = 9, .step = 3};
  set_num_threads(1);
  const std::vector<int64_t> one = draw(x, 64, options);
  set_num_threads(3);
  EXPECT_EQ(draw(x, 64, options), one);
  set_num_threads(0);
  EXPECT_NE(draw(x, 64, {.top_p = 0.95, .seed = 10, .step = 3}), one);
  EXPECT_NE(draw(x, 64, {.top_p = 0.95, .seed = 9, .step = 4}), one);
}

TEST(Sample, ReadsHalfPrecisionAndStrides) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<uint16_t> x = narrowed(normal_values(30 * 40, 3), dtype);
    const std::vector<float> wide = widened(x, dtype);
    std::vector<float> transposed(wide.size());
    for (size_t r = 0; r < 30; ++r) {
      for (size_t c = 0; c < 40; ++c) transposed[r * 40 + c] = wide[c * 30 + r];
    }
    std::vector<int64_t> tokens(60, -9);
    ASSERT_TRUE(sample(strided_view(x.data(), dtype, {30, 40}, {1, 30}), {.top_k = 7, .seed = 4},
                       strided_view(tokens.data(), DType::kInt64, {30}, {2}))
                    .ok());
    const std::vector<int64_t> expected = draw(transposed, 30, {.top_k = 7, .seed = 4});
    for (size_t r = 0; r < 30; ++r) {
      EXPECT_EQ(tokens[2 * r], expected[r]);
      EXPECT_EQ(tokens[2 * r + 1], -9);
    }
  }
}

TEST(Sample, NeverDrawsAnImpossibleToken) {
  std::vector<float> x(5000, -kInfinity);
  x[1] = 0, x[2000] = 1;
  for (uint64_t step = 0; step < 200; ++step) {
    const int64_t token = draw(x, 1, {.seed = 6, .step = step})[0];
    EXPECT_TRUE(token == 1 || token == 2000) << token;
  }
}

TEST(Sample, NamesTheRowThatLeavesNoTokenPossible) {
  for_each_dispatch_target([] {
    for (const int64_t vocabulary : {1, 3, 16, 100}) {
      std::vector<float> x(static_cast<size_t>(2 * vocabulary), -kInfinity);
      std::vector<int64_t> tokens(2);
      x[0] = 1;
      for (const double temperature : {0.0, 1.0}) {
        const Status status = sample(f32_view(x, {2, vocabulary}), {.temperature = temperature},
                                     contiguous_view(tokens.data(), DType::kInt64, {2}));
        EXPECT_EQ(status.to_string(), "FAILED_PRECONDITION: logits: row 1 leaves no token possible");
        EXPECT_EQ(tokens[0], 0);
      }
    }
  });
}

TEST(Sample, RejectsBadInput) {
  std::vector<float> x(6);
  std::vector<int64_t> tokens(2), history = {0, 3};
  const TensorView logits = f32_view(x, {2, 3}), out = contiguous_view(tokens.data(), DType::kInt64, {2});
  const auto message = [&](const SamplingOptions& options) { return sample(logits, options, out).message(); };
  EXPECT_EQ(message({.repetition_penalty = 0}), "repetition_penalty: expected a finite number above 0, got 0.000000");
  EXPECT_EQ(message({.temperature = -1}), "temperature: expected a finite number that is not negative, got -1.000000");
  EXPECT_EQ(message({.top_k = -2}), "top_k: expected 0 (all tokens) or more, got -2");
  EXPECT_EQ(message({.top_p = 0}), "top_p: expected more than 0 and at most 1, got 0.000000");
  EXPECT_EQ(message({.min_p = 1.5}), "min_p: expected 0 to 1, got 1.500000");
  EXPECT_EQ(message({.history = contiguous_view(history.data(), DType::kInt64, {2, 1})}),
            "history: expected tokens below 3, got 3 in row 1");
  EXPECT_EQ(message({.history = contiguous_view(history.data(), DType::kInt64, {1, 2})}),
            "history: expected a row for each of logits float32[2, 3], got int64[1, 2]");
  EXPECT_EQ(sample(logits, {}, contiguous_view(tokens.data(), DType::kInt64, {1})).message(),
            "tokens: expected one dimension of 2 elements (one a row of logits), got int64[1]");
  EXPECT_EQ(sample(f32_view(x, {2, 0}), {}, out).message(), "logits: expected 1 to 2^31 - 1 tokens, got float32[2, 0]");
  x[4] = std::nanf("");
  EXPECT_EQ(sample(logits, {}, out).to_string(), "FAILED_PRECONDITION: logits: row 1 has a NaN");
  x[3] = x[4] = x[5] = -kInfinity;
  EXPECT_EQ(message({}), "logits: row 1 leaves no token possible");
  EXPECT_TRUE(sample(f32_view(x, {0, 3}), {}, contiguous_view(tokens.data(), DType::kInt64, {0})).ok());
}

}  // namespace
}  // namespace qx::kernels
