#include "quincunx/lite/generation/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace qx::lite {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> draw(const SamplingOptions& options, const std::vector<float>& logits, int count) {
  Sampler sampler = Sampler::make(options).value();
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(sampler.next(logits).value());
  return tokens;
}

TEST(Sampler, TakesTheLowestOfTheMostLikelyTokens) {
  EXPECT_THAT(draw({}, {1.0F, 3.0F, 3.0F, -2.0F}, 2), testing::ElementsAre(1, 1));
  EXPECT_THAT(draw({}, {5.0F}, 1), testing::ElementsAre(0));
  EXPECT_THAT(draw({}, {-kInfinity, -1e30F}, 1), testing::ElementsAre(1));
}

TEST(Sampler, DrawsWithTheProbabilitiesOfSoftmax) {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F, -1.0F};
  constexpr double kTemperature = 0.7;
  constexpr int kDraws = 20000;
  double total = 0.0;
  for (const float logit : logits) total += std::exp(logit / kTemperature);
  std::vector<int> counts(logits.size(), 0);
  for (const int32_t token : draw({.temperature = kTemperature, .seed = 3}, logits, kDraws)) {
    ++counts[static_cast<size_t>(token)];
  }
  for (size_t token = 0; token < logits.size(); ++token) {
    const double p = std::exp(logits[token] / kTemperature) / total;
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(counts[token], kDraws * p, 5.0 * std::sqrt(kDraws * p * (1.0 - p))) << token;
  }
}

TEST(Sampler, TheSeedDecidesTheTokens) {
  const std::vector<float> logits(50, 0.0F);
  const SamplingOptions one = {.temperature = 1.0, .seed = 1};
  EXPECT_EQ(draw(one, logits, 20), draw(one, logits, 20));
  EXPECT_NE(draw(one, logits, 20), draw({.temperature = 1.0, .seed = 2}, logits, 20));
}

TEST(Sampler, TopKKeepsTheMostLikelyAndTheirEquals) {
  const std::vector<float> logits = {0.0F, 0.3F, 0.2F, 0.1F, 0.2F};
  const auto drawn = draw({.temperature = 10.0, .top_k = 2}, logits, 500);
  EXPECT_EQ(std::set<int32_t>(drawn.begin(), drawn.end()), (std::set<int32_t>{1, 2, 4}));
  EXPECT_THAT(draw({.temperature = 10.0, .top_k = 1}, logits, 3), testing::Each(1));
  const auto all = draw({.temperature = 10.0, .top_k = 99}, logits, 500);
  EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), logits.size());
}

TEST(Sampler, TopPKeepsTheFewestThatAreLikelyEnoughTogether) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(0.125F), std::log(0.5F), std::log(0.25F), std::log(0.125F)};
  const auto drawn = draw({.temperature = 1.0, .top_p = 0.7}, logits, 500);
  EXPECT_EQ(std::set<int32_t>(drawn.begin(), drawn.end()), (std::set<int32_t>{1, 2}));
  EXPECT_THAT(draw({.temperature = 1.0, .top_p = 1e-9}, logits, 20), testing::Each(1));
}

TEST(Sampler, RefusesWhatNoTokenCanComeFrom) {
  Sampler sampler = Sampler::make({.temperature = 1.0}).value();
  for (const std::vector<float>& logits : {std::vector<float>{0.0F, kNan}, {-kInfinity, -kInfinity}, {}}) {
    EXPECT_EQ(sampler.next(logits).status().code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_THAT(sampler.next(std::vector<float>{0.0F, kNan}).status().message(), testing::HasSubstr("token 1 is NaN"));
}

TEST(Sampler, RefusesOptionsOutsideOfTheirRange) {
  const std::vector<SamplingOptions> wrong = {{.temperature = -1.0}, {.temperature = kNan}, {.temperature = kInfinity},
                                              {.top_k = -1},         {.top_p = 0.0},        {.top_p = 1.5},
                                              {.top_p = kNan}};
  for (const SamplingOptions& options : wrong) {
    EXPECT_EQ(Sampler::make(options).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace qx::lite
