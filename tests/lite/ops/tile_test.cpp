// qx.tile: a fused region in a graph.
#include <gtest/gtest.h>

#include <cmath>

#include "lite/graph_builder.h"
#include "tile/programs.h"

namespace qx::lite {
namespace {

constexpr DType kF32 = DType::kFloat32;

graph::Graph softmax_graph(const std::string& program, int64_t columns) {
  GraphBuilder builder;
  const int32_t rows = builder.symbol("rows", 0, 100);
  const auto x = builder.input("x", kF32, {symbol(rows), known(3)});
  const std::vector<graph::Dim> shape = {symbol(rows), known(columns)};
  builder.output(builder.call("qx.tile", {program, std::vector{ref(x)}}, kF32, shape));
  return builder.graph();
}

TEST(Tile, RunsAProgramAtEachSize) {
  Session session = Session::create({softmax_graph(tile::kSoftmax, 3)}).value();
  for (const int64_t rows : {0, 1, 5}) {
    std::vector<float> x(static_cast<size_t>(3 * rows));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
    const auto outputs = session.run("forward", std::vector{view_of(x, {rows, 3})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const std::vector<float> y = values_of<float>(outputs->at(0));
    for (size_t i = 0; i < x.size(); i += 3) {
      double sum = 0;
      for (size_t j = 0; j < 3; ++j) sum += std::exp(static_cast<double>(x[i + j]));
      for (size_t j = 0; j < 3; ++j) {
        // An exponential within one ulp, its argument and the quotient rounded.
        EXPECT_NEAR(y[i + j], std::exp(static_cast<double>(x[i + j])) / sum, 1e-6);
      }
    }
  }
}

TEST(Tile, NamesTheNodeOfAProgramThatDoesNotFit) {
  std::vector<float> x(3);
  const std::vector<TensorView> inputs = {view_of(x, {1, 3})};
  const Status wrong_shape = run_graph(softmax_graph(tile::kSoftmax, 4), inputs).status();
  EXPECT_EQ(wrong_shape.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong_shape.message().find("n0"), std::string::npos) << wrong_shape;
  EXPECT_EQ(run_graph(softmax_graph("tile 9", 3), inputs).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::lite
