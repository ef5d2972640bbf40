#include "quincunx/lite/generation/embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr int64_t kCapacity = 4;
constexpr int32_t kPadding = 9;

// Sums tokens * mask over each row: [batch, 1].
Session summing_session() {
  GraphBuilder builder("encode");
  const graph::Dim batch = symbol(builder.symbol("batch", 1, 8));
  const graph::Dim length = symbol(builder.symbol("length", 1, kCapacity));
  const graph::ValueId tokens = builder.input("tokens", DType::kInt64, {batch, length});
  const graph::ValueId mask = builder.input("mask", DType::kInt64, {batch, length});
  const graph::ValueId kept = builder.call("aten.mul.Tensor", {ref(tokens), ref(mask)}, DType::kInt64, {batch, length});
  const std::monostate none;
  const graph::ValueId real =
      builder.call("aten._to_copy.default", {ref(kept), DType::kFloat32, none, none, none, false, none},
                   DType::kFloat32, {batch, length});
  builder.output(builder.call("aten.sum.dim_IntList", {ref(real), std::vector<graph::Dim>{known(1)}, true, none},
                              DType::kFloat32, {batch, known(1)}));
  return Session::create({builder.graph()}).value();
}

TEST(Embedder, MasksWhatFillsUpShorterTexts) {
  Session session = summing_session();
  const std::vector<std::vector<int32_t>> texts = {{1, 2, 3}, {4}, {5, 6}};
  const Tensor rows = embed(session, texts, kPadding).value();
  EXPECT_THAT(values_of<float>(rows), testing::ElementsAre(6.0F, 4.0F, 11.0F));
}

TEST(Embedder, RefusesEmptyAndLongTexts) {
  Session session = summing_session();
  const auto message = [&](const std::vector<std::vector<int32_t>>& texts) {
    return embed(session, texts, kPadding).status().message();
  };
  EXPECT_THAT(message({}), testing::HasSubstr("texts is empty"));
  EXPECT_THAT(message({{1}, {}}), testing::HasSubstr("texts[1] has 0 tokens, expected 1 to 4"));
  EXPECT_THAT(message({std::vector<int32_t>(kCapacity + 1, 1)}), testing::HasSubstr("texts[0] has 5 tokens"));
}

TEST(Embedder, RefusesModelsThatDoNotEncode) {
  GraphBuilder builder("encode");
  builder.output(builder.input("x", DType::kFloat32, {known(2)}));
  Session session = Session::create({builder.graph()}).value();
  const std::vector<std::vector<int32_t>> texts = {{1}};
  EXPECT_EQ(embed(session, texts, kPadding).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::lite
