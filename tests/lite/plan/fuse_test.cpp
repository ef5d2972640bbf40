#include "quincunx/lite/plan/fuse.h"

#include <gtest/gtest.h>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr DType kF32 = DType::kFloat32;

struct Layer {
  GraphBuilder builder;
  std::vector<graph::Dim> shape = {known(3), known(2)};
  graph::ValueId x = graph::kNoValue, weight = graph::kNoValue, product = graph::kNoValue;

  explicit Layer(DType dtype = kF32) {
    x = builder.input("x", dtype, shape);
    weight = builder.input("w", dtype, {known(2), known(2)});
    product = builder.call("aten.linear.default", {ref(x), ref(weight), std::monostate()}, dtype, shape);
  }
  std::vector<std::string> ops() {
    std::vector<std::string> names;
    for (const graph::Node& node : builder.graph().nodes) names.push_back(node.op);
    return names;
  }
};

TEST(FuseEpilogues, TakesActivationAndResidual) {
  Layer layer;
  const auto gelu =
      layer.builder.call("aten.gelu.default", {ref(layer.product), std::string("tanh")}, kF32, layer.shape);
  layer.builder.output(layer.builder.call("aten.add.Tensor", {ref(layer.x), ref(gelu), known(1)}, kF32, layer.shape));
  EXPECT_EQ(fuse_epilogues(layer.builder.graph()), 2);
  ASSERT_EQ(layer.ops(), (std::vector<std::string>{"qx.linear"}));
  const graph::Node& node = layer.builder.graph().nodes[0];
  EXPECT_EQ(std::get<std::string>(node.arguments[4]), "gelu_tanh");
  EXPECT_EQ(std::get<graph::TensorRef>(node.arguments[5]).id, layer.x);
  EXPECT_EQ(node.results[0], layer.builder.graph().outputs[0]);
}

TEST(FuseEpilogues, LeavesAProductThatHasTwoReaders) {
  Layer layer;
  layer.builder.output(layer.builder.call("aten.relu.default", {ref(layer.product)}, kF32, layer.shape));
  layer.builder.output(layer.product);
  EXPECT_EQ(fuse_epilogues(layer.builder.graph()), 0);
  EXPECT_EQ(layer.ops(), (std::vector<std::string>{"qx.linear", "aten.relu.default"}));
}

TEST(FuseEpilogues, LeavesOtherDtypesBroadcastAdditionsAndAlpha) {
  Layer half(DType::kBFloat16);
  half.builder.output(half.builder.call("aten.relu.default", {ref(half.product)}, DType::kBFloat16, half.shape));
  EXPECT_EQ(fuse_epilogues(half.builder.graph()), 0);
  EXPECT_EQ(half.ops()[0], "aten.linear.default");

  Layer row;
  const auto added = row.builder.input("row", kF32, {known(2)});
  row.builder.output(row.builder.call("aten.add.Tensor", {ref(row.product), ref(added), known(1)}, kF32, row.shape));
  EXPECT_EQ(fuse_epilogues(row.builder.graph()), 0);

  Layer scaled;
  scaled.builder.output(
      scaled.builder.call("aten.add.Tensor", {ref(scaled.product), ref(scaled.x), known(2)}, kF32, scaled.shape));
  EXPECT_EQ(fuse_epilogues(scaled.builder.graph()), 0);
}

TEST(FuseEpilogues, DoesNotActivateAfterAResidual) {
  // relu(x w + x) is not relu(x w) + x.
  Layer layer;
  const auto sum =
      layer.builder.call("aten.add.Tensor", {ref(layer.product), ref(layer.x), known(1)}, kF32, layer.shape);
  layer.builder.output(layer.builder.call("aten.relu.default", {ref(sum)}, kF32, layer.shape));
  EXPECT_EQ(fuse_epilogues(layer.builder.graph()), 1);
  EXPECT_EQ(layer.ops(), (std::vector<std::string>{"qx.linear", "aten.relu.default"}));
}

TEST(RemoveUnusedNodes, KeepsWhatOutputsAndStatesNeed) {
  Layer layer;
  layer.builder.call("aten.relu.default", {ref(layer.product)}, kF32, layer.shape);
  const auto kept = layer.builder.call("aten.neg.default", {ref(layer.x)}, kF32, layer.shape);
  layer.builder.output(kept);
  EXPECT_EQ(remove_unused_nodes(layer.builder.graph()), 2);
  EXPECT_EQ(layer.ops(), (std::vector<std::string>{"aten.neg.default"}));
}

}  // namespace
}  // namespace qx::lite
