#include "quincunx/lite/generation/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr int64_t kVocabulary = 7;
constexpr int64_t kCapacity = 6;

// Says after token t that t + 1 (modulo the vocabulary) comes next: its logit is the largest of table row t.
graph::Graph counting_method(const std::string& name, bool prefill) {
  GraphBuilder builder(name);
  const graph::Dim length = prefill ? symbol(builder.symbol("length", 1, kCapacity)) : known(1);
  const graph::ValueId tokens = builder.input("tokens", DType::kInt64, {known(1), length});
  builder.input("position", DType::kInt64, {});
  std::vector<float> table(kVocabulary * kVocabulary, 0.0F);
  for (int64_t t = 0; t < kVocabulary; ++t) table[static_cast<size_t>(t * kVocabulary + (t + 1) % kVocabulary)] = 1.0F;
  const graph::ValueId weight = builder.constant(DType::kFloat32, {kVocabulary, kVocabulary}, table);
  const graph::ValueId rows =
      builder.call("aten.embedding.default", {ref(weight), ref(tokens), known(-1), false, false}, DType::kFloat32,
                   {known(1), length, known(kVocabulary)});
  graph::Dim last = length;
  last.value -= 1;
  builder.output(builder.call("aten.slice.Tensor", {ref(rows), known(1), last, length, known(1)}, DType::kFloat32,
                              {known(1), known(1), known(kVocabulary)}));
  return builder.graph();
}

Session counting_session() {
  return Session::create({counting_method("prefill", true), counting_method("decode", false)}).value();
}

TEST(Generator, ContinuesAPromptGreedily) {
  Session session = counting_session();
  const std::vector<int32_t> prompt = {2, 4};
  const Generation generation = generate(session, prompt, {.max_tokens = 4}).value();
  EXPECT_THAT(generation.tokens, testing::ElementsAre(5, 6, 0, 1));
  EXPECT_EQ(generation.stop_reason, StopReason::kMaxTokens);
  EXPECT_EQ(generation.num_prompt_tokens, 2);
  EXPECT_GT(generation.prefill_ns, 0);
}

TEST(Generator, EndsBeforeAStopToken) {
  Session session = counting_session();
  const Generation generation = generate(session, std::vector<int32_t>{2}, {.stop_tokens = {6, 5}}).value();
  EXPECT_THAT(generation.tokens, testing::ElementsAre(3, 4));
  EXPECT_EQ(generation.stop_reason, StopReason::kStopToken);
}

TEST(Generator, EndsWhereTheCachesAreFull) {
  Session session = counting_session();
  const Generation generation = generate(session, std::vector<int32_t>{0, 1, 2}, {.max_tokens = 100}).value();
  // The last token needs no room of its own: nothing is computed after it.
  EXPECT_EQ(generation.tokens.size(), kCapacity - 3 + 1);
  EXPECT_EQ(generation.stop_reason, StopReason::kFullCache);
}

TEST(Generator, ShowsEachTokenAndEndsWhenTheCallerHasEnough) {
  Session session = counting_session();
  std::vector<int32_t> seen;
  const auto callback = [&](int32_t token) {
    seen.push_back(token);
    return seen.size() < 2;
  };
  const Generation generation = generate(session, std::vector<int32_t>{3}, {.max_tokens = 4}, callback).value();
  EXPECT_EQ(seen, generation.tokens);
  EXPECT_EQ(generation.stop_reason, StopReason::kCallback);
  EXPECT_EQ(seen.size(), 2U);
}

TEST(Generator, HonoursCancelAndDeadline) {
  Session session = counting_session();
  const std::atomic<bool> cancel = true;
  const std::vector<int32_t> prompt = {1};
  EXPECT_EQ(generate(session, prompt, {.cancel = &cancel}).status().code(), StatusCode::kAborted);
  const auto past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ(generate(session, prompt, {.deadline = past}).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(Generator, RefusesWrongPromptsAndCounts) {
  Session session = counting_session();
  const auto code = [&](const std::vector<int32_t>& prompt, const GenerateOptions& options) {
    return generate(session, prompt, options).status().code();
  };
  EXPECT_EQ(code({}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({-1}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({kVocabulary}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::vector<int32_t>(kCapacity + 1, 0), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0}, {.max_tokens = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0}, {.sampling = {.top_p = 2.0}}), StatusCode::kInvalidArgument);
  EXPECT_THAT(generate(session, std::vector<int32_t>{9}, {}).status().message(),
              testing::HasSubstr("prompt[0] is 9, expected 0 to 6"));
}

TEST(Generator, RefusesModelsThatDoNotDecode) {
  Session session = Session::create({counting_method("forward", true)}).value();
  EXPECT_EQ(generate(session, std::vector<int32_t>{0}, {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace qx::lite
