#include "quincunx/lite/convert/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lite/graph_builder.h"
#include "quincunx/lite/convert/coverage.h"
#include "quincunx/lite/convert/edit.h"
#include "quincunx/lite/convert/no_ops.h"

namespace qx::lite {
namespace {

using graph::ValueId;

const std::monostate kNone;
const std::vector<graph::Dim> kShape = {known(2), known(3)};

std::vector<std::string> ops(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes) names.push_back(node.op);
  return names;
}

TEST(NoOps, AreBypassedInChains) {
  GraphBuilder builder;
  ValueId x = builder.input("x", DType::kFloat32, kShape);
  x = builder.call("aten._to_copy.default", {ref(x), DType::kFloat32, kNone, kNone, kNone, false, kNone},
                   DType::kFloat32, kShape);
  x = builder.call("aten.clone.default", {ref(x), kNone}, DType::kFloat32, kShape);
  x = builder.call("aten.dropout.default", {ref(x), 0.5, false}, DType::kFloat32, kShape);
  x = builder.call("aten.view.default", {ref(x), kShape}, DType::kFloat32, kShape);
  x = builder.call("aten.mul.Tensor", {ref(x), 1.0}, DType::kFloat32, kShape);
  builder.output(builder.call("aten.neg.default", {ref(x)}, DType::kFloat32, kShape));
  EXPECT_EQ(bypass_no_ops(builder.graph()), 5);
  simplify(builder.graph());
  EXPECT_THAT(ops(builder.graph()), testing::ElementsAre("aten.neg.default"));
  EXPECT_EQ(builder.graph().values.size(), 2U);
  EXPECT_TRUE(graph::verify(builder.graph()).ok());
}

TEST(NoOps, WhatChangesSomethingStays) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat32, {known(2), known(2)});
  const std::vector<graph::Dim> square = {known(2), known(2)};
  // The same shape, but the elements move; -0.0 + 0 is 0.0; another dtype; dropout in training.
  builder.output(builder.call("aten.transpose.int", {ref(x), known(0), known(1)}, DType::kFloat32, square));
  builder.output(builder.call("aten.add.Tensor", {ref(x), known(0), known(1)}, DType::kFloat32, square));
  builder.output(builder.call("aten._to_copy.default", {ref(x), DType::kFloat64, kNone, kNone, kNone, false, kNone},
                              DType::kFloat64, square));
  builder.output(builder.call("aten.dropout.default", {ref(x), 0.5, true}, DType::kFloat32, square));
  EXPECT_EQ(bypass_no_ops(builder.graph()), 0);
}

TEST(NoOps, AddingZeroToWholeNumbersIsOne) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kInt64, kShape);
  builder.output(builder.call("aten.add.Tensor", {ref(x), known(0), known(1)}, DType::kInt64, kShape));
  EXPECT_EQ(bypass_no_ops(builder.graph()), 1);
  EXPECT_EQ(builder.graph().outputs[0], x);
}

TEST(DeadCode, TakesNodesValuesAndConstantsAlong) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat32, kShape);
  const ValueId unused_input = builder.input("unused", DType::kFloat32, kShape);
  const ValueId dead_weight = builder.constant<float>(DType::kFloat32, {2, 3}, std::vector<float>(6, 1.0F));
  const ValueId weight = builder.constant<float>(DType::kFloat32, {2, 3}, std::vector<float>(6, 2.0F));
  builder.call("aten.add.Tensor", {ref(x), ref(dead_weight), known(1)}, DType::kFloat32, kShape);
  builder.output(builder.call("aten.add.Tensor", {ref(x), ref(weight), known(1)}, DType::kFloat32, kShape));
  remove_dead_code(builder.graph());
  const graph::Graph& graph = builder.graph();
  EXPECT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.constants.size(), 1U);
  EXPECT_EQ(reinterpret_cast<const float*>(graph.constants[0].storage->data())[0], 2.0F);
  EXPECT_EQ(graph.inputs.size(), 2U);
  EXPECT_EQ(graph.values[static_cast<size_t>(graph.inputs[1])].name, "unused");
  EXPECT_TRUE(graph::verify(graph).ok());
  (void)unused_input;
}

TEST(BindSymbol, PutsTheSizeEverywhereAndRenumbersTheOthers) {
  GraphBuilder builder;
  const int32_t rows = builder.symbol("rows", 1, 9);
  const int32_t columns = builder.symbol("columns", 1, 9);
  const ValueId x = builder.input("x", DType::kFloat32, {symbol(rows), symbol(columns)});
  builder.output(builder.call("aten.slice.Tensor", {ref(x), known(0), symbol(rows, 1, -1), symbol(rows), known(1)},
                              DType::kFloat32, {known(1), symbol(columns)}));
  const graph::Graph bound = bind_symbol(builder.graph(), rows, 4).value();
  ASSERT_EQ(bound.symbols.size(), 1U);
  EXPECT_EQ(bound.symbols[0].name, "columns");
  EXPECT_EQ(bound.values[0].type.shape, (std::vector{known(4), symbol(0)}));
  EXPECT_EQ(bound.nodes[0].arguments[2], graph::Argument(known(3)));
  EXPECT_TRUE(graph::verify(bound).ok());
}

TEST(BindSymbol, RefusesSizesOutsideOfTheRange) {
  GraphBuilder builder;
  builder.output(builder.input("x", DType::kFloat32, {symbol(builder.symbol("rows", 2, 9))}));
  for (const int64_t size : {1, 10}) {
    EXPECT_THAT(bind_symbol(builder.graph(), 0, size).status().message(), testing::HasSubstr("expected 2 to 9"));
  }
  EXPECT_EQ(bind_symbol(builder.graph(), 1, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bind_symbol(builder.graph(), -1, 2).status().code(), StatusCode::kInvalidArgument);
}

TEST(Coverage, ListsTheNodesThatTheRuntimeLacks) {
  GraphBuilder builder("forward");
  ValueId x = builder.input("x", DType::kFloat32, kShape);
  x = builder.call("aten.neg.default", {ref(x)}, DType::kFloat32, kShape);
  EXPECT_TRUE(check_operators(builder.graph()).ok());
  for (int i = 0; i < 25; ++i) x = builder.call("mine.odd.default", {ref(x)}, DType::kFloat32, kShape);
  const Status status = check_operators(builder.graph());
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              testing::AllOf(testing::HasSubstr("has 25 of 26 nodes"), testing::HasSubstr("'n1'"),
                             testing::HasSubstr("mine.odd.default"), testing::HasSubstr("and 5 more")));
}

graph::Graph encoder() {
  GraphBuilder builder;
  const std::vector<graph::Dim> shape = {symbol(builder.symbol("s0", 2, 64)), symbol(builder.symbol("s1", 2, 64))};
  const ValueId tokens = builder.input("a", DType::kInt64, shape);
  const ValueId mask = builder.input("b", DType::kInt64, shape);
  builder.output(builder.call("aten.mul.Tensor", {ref(tokens), ref(mask)}, DType::kInt64, shape));
  return builder.graph();
}

TEST(Method, ComputesWhatIsConstant) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat32, kShape);
  const ValueId one = builder.constant<float>(DType::kFloat32, {2, 3}, std::vector<float>(6, 1.0F));
  const ValueId minus = builder.call("aten.neg.default", {ref(one)}, DType::kFloat32, kShape);
  builder.output(builder.call("aten.add.Tensor", {ref(x), ref(minus), known(1)}, DType::kFloat32, kShape));
  const graph::Graph method = make_method(builder.graph(), "forward").value();
  EXPECT_THAT(ops(method), testing::ElementsAre("aten.add.Tensor"));
  ASSERT_EQ(method.constants.size(), 1U);
  EXPECT_EQ(reinterpret_cast<const float*>(method.constants[0].storage->data())[5], -1.0F);
}

TEST(Method, RefusesOperatorsThatTheRuntimeLacks) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat32, kShape);
  builder.output(builder.call("mine.odd.default", {ref(x)}, DType::kFloat32, kShape));
  EXPECT_EQ(make_method(builder.graph(), "forward").status().code(), StatusCode::kUnimplemented);
}

TEST(Encoder, NamesInputsAndSizesAndAllowsOne) {
  const graph::Graph graph = make_encoder(encoder(), 16, 256).value();
  EXPECT_EQ(graph.name, "encode");
  EXPECT_EQ(graph.values[static_cast<size_t>(graph.inputs[1])].name, "mask");
  EXPECT_EQ(graph.symbols[0].min, 1);
  EXPECT_EQ(graph.symbols[0].max, 16);
  EXPECT_EQ(graph.symbols[1].max, 256);
}

TEST(Encoder, RefusesGraphsOfAnotherForm) {
  EXPECT_EQ(make_encoder(encoder(), 0, 256).status().code(), StatusCode::kInvalidArgument);
  graph::Graph fixed = encoder();
  fixed.values[0].type.shape[1] = known(3);
  EXPECT_EQ(make_encoder(fixed, 16, 256).status().code(), StatusCode::kInvalidArgument);
  graph::Graph single = encoder();
  single.inputs.pop_back();
  EXPECT_EQ(make_encoder(single, 16, 256).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make_method(encoder(), "").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::lite
