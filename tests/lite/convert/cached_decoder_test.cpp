#include "quincunx/lite/convert/cached_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr int64_t kVocabulary = 5;
constexpr int64_t kWidth = 4;
constexpr int64_t kMaxLength = 8;
const std::monostate kNone;

// tokens -> embedding + positions -> one head of causal attention -> logits. `change` may spoil it.
struct Decoder {
  GraphBuilder builder;
  graph::Dim length = symbol(builder.symbol("s0", 2, 64));
  graph::ValueId tokens = builder.input("tokens_bl", DType::kInt64, {known(1), length});
  std::vector<graph::Dim> flat = {known(1), length, known(kWidth)};
  std::vector<graph::Dim> heads = {known(1), known(1), length, known(kWidth)};

  graph::ValueId embedded() {
    std::vector<float> table;
    for (int64_t i = 0; i < kVocabulary * kWidth; ++i) table.push_back(static_cast<float>((i * 7) % 11) * 0.1F);
    const auto weight = builder.constant(DType::kFloat32, {kVocabulary, kWidth}, table);
    return builder.call("aten.embedding.default", {ref(weight), ref(tokens), known(-1), false, false}, DType::kFloat32,
                        flat);
  }

  // x with its row's position added; `op` is one of the ways to count.
  graph::ValueId with_positions(graph::ValueId x, const std::string& op = "aten.arange.start_step", int64_t step = 1) {
    std::vector<graph::Argument> arguments;
    if (op != "aten.arange.default") arguments.push_back(known(0));
    arguments.push_back(length);
    if (op == "aten.arange.start_step") arguments.push_back(known(step));
    for (const graph::Argument& rest : {graph::Argument(DType::kFloat32), {}, {}, {}}) arguments.push_back(rest);
    const auto counted = builder.call(op, arguments, DType::kFloat32, {length});
    const auto column =
        builder.call("aten.unsqueeze.default", {ref(counted), known(1)}, DType::kFloat32, {length, known(1)});
    return builder.call("aten.add.Tensor", {ref(x), ref(column), known(1)}, DType::kFloat32, flat);
  }

  graph::ValueId attended(graph::ValueId x, bool causal = true) {
    const auto head = builder.call("aten.unsqueeze.default", {ref(x), known(1)}, DType::kFloat32, heads);
    const auto mixed =
        builder.call("aten.scaled_dot_product_attention.default",
                     {ref(head), ref(head), ref(head), kNone, 0.0, causal, kNone, false}, DType::kFloat32, heads);
    return builder.call("aten.squeeze.dim", {ref(mixed), known(1)}, DType::kFloat32, flat);
  }

  void finish(graph::ValueId x) {
    std::vector<float> weight;
    for (int64_t i = 0; i < kVocabulary * kWidth; ++i) weight.push_back(static_cast<float>((i * 5) % 7) - 3.0F);
    const auto head = builder.constant(DType::kFloat32, {kVocabulary, kWidth}, weight);
    builder.output(builder.call("aten.linear.default", {ref(x), ref(head), kNone}, DType::kFloat32,
                                {known(1), length, known(kVocabulary)}));
  }
};

graph::Graph decoder_graph(const std::string& arange = "aten.arange.start_step", int64_t step = 1) {
  Decoder decoder;
  decoder.finish(decoder.attended(decoder.with_positions(decoder.embedded(), arange, step)));
  return decoder.builder.graph();
}

std::vector<float> logits(Session& session, const std::string& method, std::vector<int64_t> tokens, int64_t position) {
  std::vector<TensorView> inputs = {view_of(tokens, {1, static_cast<int64_t>(tokens.size())})};
  std::vector<int64_t> at = {position};
  if (method != "forward") inputs.push_back(view_of(at, {}));
  return values_of<float>(session.run(method, inputs).value()[0]);
}

int count(const graph::Graph& graph, const std::string& op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const graph::Node& node) { return node.op == op; }));
}

class EachArange : public testing::TestWithParam<const char*> {};

TEST_P(EachArange, GivesTheLogitsOfTheWholeTextTokenByToken) {
  Session whole = Session::create({decoder_graph(GetParam())}).value();
  Session cached =
      Session::create(make_decoder_methods(decoder_graph(GetParam()), {.max_length = kMaxLength}).value()).value();
  const std::vector<int64_t> text = {3, 1, 4, 1, 0, 2};
  constexpr size_t kPrompt = 2;
  for (size_t end = kPrompt; end <= text.size(); ++end) {
    const auto stop = text.begin() + static_cast<std::ptrdiff_t>(end);
    const std::vector<float> all = logits(whole, "forward", {text.begin(), stop}, 0);
    const std::vector<float> expected(all.end() - kVocabulary, all.end());
    const std::vector<float> ours = end == kPrompt
                                        ? logits(cached, "prefill", {text.begin(), stop}, 0)
                                        : logits(cached, "decode", {text[end - 1]}, static_cast<int64_t>(end) - 1);
    // Both are sums of at most kWidth products and end rows of values below 10 in float32.
    EXPECT_THAT(ours, testing::Pointwise(testing::FloatNear(1e-4F), expected)) << end;
  }
}

INSTANTIATE_TEST_SUITE_P(CachedDecoder, EachArange,
                         testing::Values("aten.arange.default", "aten.arange.start", "aten.arange.start_step"));

TEST(CachedDecoder, RefusesPositionsThatItDoesNotKnow) {
  const auto refused = make_cached_decoder(decoder_graph("aten.arange.start_step", 2), {.max_length = kMaxLength});
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("counts the tokens in a way of its own"));
  Decoder random;
  const auto noise = random.builder.call("aten.rand.default", {std::vector<graph::Dim>{random.length, known(1)}},
                                         DType::kFloat32, {random.length, known(1)});
  const auto x = random.builder.call("aten.add.Tensor", {ref(random.embedded()), ref(noise), known(1)}, DType::kFloat32,
                                     random.flat);
  random.finish(random.attended(x));
  EXPECT_THAT(make_cached_decoder(random.builder.graph(), {.max_length = kMaxLength}).status().message(),
              testing::HasSubstr("gives each token a value of its own"));
}

TEST(CachedDecoder, APromptOfOneTokenWorks) {
  Session cached = Session::create(make_decoder_methods(decoder_graph(), {.max_length = kMaxLength}).value()).value();
  EXPECT_EQ(logits(cached, "prefill", {2}, 0), logits(cached, "decode", {2}, 0));
}

TEST(CachedDecoder, NamesStatesInputsAndMethods) {
  const std::vector<graph::Graph> methods = make_decoder_methods(decoder_graph(), {.max_length = kMaxLength}).value();
  ASSERT_EQ(methods.size(), 2U);
  EXPECT_EQ(methods[0].name, "prefill");
  EXPECT_EQ(methods[1].name, "decode");
  for (const graph::Graph& method : methods) {
    EXPECT_EQ(count(method, "qx.kv_append"), 2);
    EXPECT_EQ(count(method, "qx.attention_cached"), 1);
    EXPECT_EQ(count(method, "aten.scaled_dot_product_attention.default"), 0);
    ASSERT_EQ(method.states.size(), 2U);
    EXPECT_EQ(method.states[0].name, "key.0");
    EXPECT_EQ(method.states[1].name, "value.0");
    EXPECT_EQ(method.values[static_cast<size_t>(method.states[0].input)].type.shape[2], known(kMaxLength));
    EXPECT_EQ(method.values[static_cast<size_t>(method.inputs[1])].name, "position");
  }
  EXPECT_EQ(methods[0].symbols[0].min, 1);
  EXPECT_EQ(methods[0].symbols[0].max, kMaxLength);
  EXPECT_TRUE(methods[1].symbols.empty());
}

TEST(CachedDecoder, MultipliesOnlyTheLastTokenWithTheVocabulary) {
  const graph::Graph graph = make_cached_decoder(decoder_graph(), {.max_length = kMaxLength}).value();
  const auto linear = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [](const graph::Node& node) { return node.op == "aten.linear.default"; });
  const graph::ValueId source = std::get<graph::TensorRef>(linear->arguments[0]).id;
  EXPECT_EQ(graph.values[static_cast<size_t>(source)].type.shape, (std::vector{known(1), known(1), known(kWidth)}));
}

TEST(CachedDecoder, ReadsRowsOfAPositionTableFromThePosition) {
  const auto make = [] {
    Decoder decoder;
    std::vector<float> table;
    for (int64_t i = 0; i < kMaxLength * kWidth; ++i) table.push_back(static_cast<float>(i) * 0.25F);
    const auto positions = decoder.builder.constant(DType::kFloat32, {kMaxLength, kWidth}, table);
    const auto rows =
        decoder.builder.call("aten.slice.Tensor", {ref(positions), known(0), known(0), decoder.length, known(1)},
                             DType::kFloat32, {decoder.length, known(kWidth)});
    const auto x = decoder.builder.call("aten.add.Tensor", {ref(decoder.embedded()), ref(rows), known(1)},
                                        DType::kFloat32, decoder.flat);
    decoder.finish(decoder.attended(x));
    return decoder.builder.graph();
  };
  Session whole = Session::create({make()}).value();
  Session cached = Session::create(make_decoder_methods(make(), {.max_length = kMaxLength}).value()).value();
  logits(cached, "prefill", {3, 1}, 0);
  const std::vector<float> all = logits(whole, "forward", {3, 1, 4}, 0);
  EXPECT_THAT(logits(cached, "decode", {4}, 2),
              testing::Pointwise(testing::FloatNear(1e-4F), std::vector<float>(all.end() - kVocabulary, all.end())));
}

std::string refusal(const graph::Graph& graph, int64_t max_length = kMaxLength) {
  const auto result = make_cached_decoder(graph, {.max_length = max_length});
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  return result.ok() ? "" : result.status().message();
}

TEST(CachedDecoder, RefusesAttentionThatIsNotCausal) {
  Decoder decoder;
  decoder.finish(decoder.attended(decoder.embedded(), false));
  EXPECT_THAT(refusal(decoder.builder.graph()), testing::HasSubstr("is not causal; call it with is_causal=True"));
}

TEST(CachedDecoder, RefusesWhatMixesTokensOutsideOfAttention) {
  Decoder summing;
  const auto summed = summing.builder.call("aten.cumsum.default", {ref(summing.embedded()), known(1), kNone},
                                           DType::kFloat32, summing.flat);
  summing.finish(summing.attended(summed));
  EXPECT_THAT(refusal(summing.builder.graph()), testing::HasSubstr("(aten.cumsum.default) works along the tokens"));

  Decoder pooling;
  const auto x = pooling.attended(pooling.embedded());
  const auto mean = pooling.builder.call("aten.mean.dim", {ref(x), std::vector<graph::Dim>{known(1)}, true, kNone},
                                         DType::kFloat32, {known(1), known(1), known(kWidth)});
  pooling.finish(pooling.builder.call("aten.add.Tensor", {ref(x), ref(mean), known(1)}, DType::kFloat32, pooling.flat));
  EXPECT_THAT(refusal(pooling.builder.graph()), testing::HasSubstr("joins all"));

  Decoder scores;
  const auto y = scores.attended(scores.embedded());
  const auto square = scores.builder.call("aten.matmul.default", {ref(y), ref(y)}, DType::kFloat32,
                                          {known(1), scores.length, scores.length});
  (void)square;
  scores.finish(y);
  // Dead code is no obstacle.
  EXPECT_TRUE(make_cached_decoder(scores.builder.graph(), {.max_length = kMaxLength}).ok());
}

TEST(CachedDecoder, RefusesGraphsThatAreNoDecoders) {
  Decoder plain;
  plain.finish(plain.embedded());
  EXPECT_THAT(refusal(plain.builder.graph()), testing::HasSubstr("has no aten.scaled_dot_product_attention"));
  EXPECT_THAT(refusal(decoder_graph(), 1), testing::HasSubstr("max_length is 1, expected at least 2"));
  graph::Graph fixed = decoder_graph();
  fixed.values[static_cast<size_t>(fixed.inputs[0])].type.shape[1] = known(7);
  EXPECT_THAT(refusal(fixed), testing::HasSubstr("length that may vary"));
  graph::Graph more = decoder_graph();
  more.outputs.push_back(more.outputs[0]);
  EXPECT_THAT(refusal(more), testing::HasSubstr("1 inputs and 2 outputs"));
}

}  // namespace
}  // namespace qx::lite
