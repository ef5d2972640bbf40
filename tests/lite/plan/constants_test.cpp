#include "quincunx/lite/plan/constants.h"

#include <gtest/gtest.h>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr DType kF32 = DType::kFloat32;

TEST(FoldConstants, ComputesWhatDependsOnNoInput) {
  GraphBuilder builder;
  const auto x = builder.input("x", kF32, {known(3)});
  const auto range = builder.call("aten.arange.default", {known(3)}, DType::kInt64, {known(3)});
  const auto halves = builder.call("aten.mul.Tensor", {ref(range), 0.5}, kF32, {known(3)});
  builder.output(builder.call("aten.add.Tensor", {ref(x), ref(halves), known(1)}, kF32, {known(3)}));
  const std::vector<TensorView> views = fold_constants(builder.graph(), 1 << 20).value();
  EXPECT_EQ(builder.graph().nodes.size(), 1u);
  EXPECT_EQ(views[static_cast<size_t>(halves)].data_as<float>()[2], 1.0f);
  EXPECT_EQ(views[static_cast<size_t>(x)].data(), nullptr);
  std::vector<float> values = {1, 2, 3};
  const auto outputs = run_graph(builder.graph(), {view_of(values, {3})}).value();
  EXPECT_EQ(values_of<float>(outputs[0]), (std::vector<float>{1, 2.5f, 4}));
}

TEST(FoldConstants, LeavesLargeResultsAndSymbolsToTheCall) {
  GraphBuilder builder;
  const int32_t n = builder.symbol("n", 1, 100);
  builder.input("x", kF32, {symbol(n)});
  builder.output(builder.call("aten.zeros.default", {std::vector{known(1000)}}, kF32, {known(1000)}));
  builder.output(builder.call("aten.zeros.default", {std::vector{symbol(n)}}, kF32, {symbol(n)}));
  ASSERT_TRUE(fold_constants(builder.graph(), 3999).ok());
  EXPECT_EQ(builder.graph().nodes.size(), 2u);
  ASSERT_TRUE(fold_constants(builder.graph(), 4000).ok());
  EXPECT_EQ(builder.graph().nodes.size(), 1u);
}

TEST(FoldConstants, DoesNotTakeAStateForAConstant) {
  GraphBuilder builder;
  const auto count = builder.constant<float>(kF32, {1}, {5});
  const auto next = builder.call("aten.add.Tensor", {ref(count), known(1), known(1)}, kF32, {known(1)});
  builder.state("count", count, next);
  builder.output(next);
  Session session = Session::create({builder.graph()}).value();
  for (const float expected : {6.0f, 7.0f}) {
    EXPECT_EQ(values_of<float>(session.run("forward", {}).value()[0])[0], expected);
  }
  session.reset_states();
  EXPECT_EQ(session.state("count").value().data_as<float>()[0], 5) << "the initial value, not zero";
}

TEST(PackWeights, SharesAWeightThatTwoMethodsUse) {
  GraphBuilder first("first");
  const auto x = first.input("x", kF32, {known(4), known(2)});
  const auto weight = first.constant<float>(kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  first.output(first.call("aten.linear.default", {ref(x), ref(weight), std::monostate()}, kF32, {known(4), known(3)}));
  graph::Graph second = first.graph();
  second.name = "second";
  Session one = Session::create({first.graph()}).value();
  Session two = Session::create({first.graph(), second}).value();
  const int64_t bytes = one.memory("first", {{4, 2}}).value().packed_weight_bytes;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(two.memory("second", {{4, 2}}).value().packed_weight_bytes, bytes);
}

TEST(PackWeights, PacksAViewOfAWeight) {
  GraphBuilder builder;
  const auto x = builder.input("x", kF32, {known(1), known(2)});
  const auto weight = builder.constant<float>(kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const auto turned = builder.call("aten.t.default", {ref(weight)}, kF32, {known(2), known(3)});
  builder.output(builder.call("aten.mm.default", {ref(x), ref(turned)}, kF32, {known(1), known(3)}));
  Session session = Session::create({builder.graph()}).value();
  EXPECT_GT(session.memory("forward", {{1, 2}}).value().packed_weight_bytes, 0);
  std::vector<float> values = {1, 10};
  EXPECT_EQ(values_of<float>(session.run("forward", std::vector{view_of(values, {1, 2})}).value()[0]),
            (std::vector<float>{21, 43, 65}));
}

}  // namespace
}  // namespace qx::lite
