#include "quincunx/lite/convert/regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

using graph::ValueId;

constexpr DType kF32 = DType::kFloat32;
const std::vector<graph::Dim> kShape = {known(2), known(3)};

std::vector<std::string> ops(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes) names.push_back(node.op);
  return names;
}

TEST(Regions, AnOperatorBetweenReadsTheRegionsResultAfterIt) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", kF32, kShape);
  const ValueId a = builder.call("aten.tanh.default", {ref(x)}, kF32, kShape);
  const ValueId sums = builder.call("aten.cumsum.default", {ref(a), known(1), std::monostate()}, kF32, kShape);
  const ValueId b = builder.call("aten.mul.Tensor", {ref(a), ref(x)}, kF32, kShape);
  builder.output(sums);
  builder.output(b);
  graph::Graph fused = builder.graph();
  const auto regions = make_tile_regions(fused);
  ASSERT_TRUE(regions.ok()) << regions.status();
  EXPECT_THAT(ops(fused), testing::ElementsAre("qx.tile", "aten.cumsum.default"));
  ASSERT_EQ(regions->size(), 1U);
  EXPECT_THAT(regions->at(0).nodes, testing::ElementsAre("n0", "n2"));
  EXPECT_EQ(regions->at(0).kind, "elementwise");
  EXPECT_EQ(regions->at(0).name, fused.nodes[0].name);
  std::vector<float> values = {-1, 0, 0.5f, 3, 1, -2};
  const auto outputs = run_graph(fused, {view_of(values, {2, 3})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto cumulated = values_of<float>(outputs->at(0)), products = values_of<float>(outputs->at(1));
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t i = 3 * row; i < 3 * row + 3; ++i) {
      const double expected = std::tanh(static_cast<double>(values[i]));
      sum += expected;
      EXPECT_NEAR(cumulated[i], sum, 1e-6);
      EXPECT_NEAR(products[i], expected * static_cast<double>(values[i]), 1e-6);
    }
  }
}

TEST(Regions, ProductsKeepTheirEpilogues) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", kF32, kShape);
  const ValueId weight = builder.constant<float>(kF32, {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  const ValueId product = builder.call("aten.linear.default", {ref(x), ref(weight), std::monostate()}, kF32, kShape);
  builder.output(builder.call("aten.add.Tensor", {ref(product), ref(x), known(1)}, kF32, kShape));
  const auto regions = make_tile_regions(builder.graph());
  ASSERT_TRUE(regions.ok()) << regions.status();
  EXPECT_TRUE(regions->empty());
  EXPECT_THAT(ops(builder.graph()), testing::ElementsAre("qx.linear"));
}

TEST(Regions, OneOperatorAloneStaysWhatItIs) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", kF32, kShape);
  builder.output(builder.call("aten.tanh.default", {ref(x)}, kF32, kShape));
  ASSERT_TRUE(make_tile_regions(builder.graph()).ok());
  EXPECT_THAT(ops(builder.graph()), testing::ElementsAre("aten.tanh.default"));
}

TEST(Regions, SizesMayVary) {
  GraphBuilder builder;
  const int32_t rows = builder.symbol("rows", 1, 100);
  const std::vector<graph::Dim> shape = {symbol(rows), known(3)};
  const ValueId x = builder.input("x", kF32, shape);
  const ValueId squares = builder.call("aten.mul.Tensor", {ref(x), ref(x)}, kF32, shape);
  const ValueId mean = builder.call("aten.mean.dim", {ref(squares), std::vector{known(-1)}, true, std::monostate()},
                                    kF32, {symbol(rows), known(1)});
  builder.output(builder.call("aten.div.Tensor", {ref(x), ref(mean)}, kF32, shape));
  const auto regions = make_tile_regions(builder.graph());
  ASSERT_TRUE(regions.ok()) << regions.status();
  ASSERT_THAT(ops(builder.graph()), testing::ElementsAre("qx.tile"));
  EXPECT_EQ(regions->at(0).kind, "reduce");
  Session session = Session::create({builder.graph()}).value();
  for (const int64_t count : {1, 4}) {
    std::vector<float> values(static_cast<size_t>(3 * count), 2.0f);
    const auto outputs = session.run("forward", std::vector{view_of(values, {count, 3})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(values_of<float>(outputs->at(0)), testing::Each(0.5f));
  }
}

TEST(Regions, AGraphThatIsWrongIsRefused) {
  GraphBuilder builder;
  builder.output(7);
  EXPECT_EQ(make_tile_regions(builder.graph()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::lite
