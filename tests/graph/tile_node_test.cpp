#include "quincunx/graph/tile_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graphs.h"
#include "tile/programs.h"

namespace qx::graph {
namespace {

using testing::HasSubstr;

Graph graph_of_softmax() {
  Graph graph = small_graph();
  graph.nodes[1] = {.op = kTileOperator,
                    .name = "softmax",
                    .arguments = {std::string(tile::kSoftmax), std::vector<TensorRef>{{2}}},
                    .results = {3}};
  return graph;
}

TEST(TileNode, IsVerifiedWithItsProgram) { EXPECT_TRUE(verify(graph_of_softmax()).ok()); }

TEST(TileNode, NamesTheNodeOfAWrongProgram) {
  Graph graph = graph_of_softmax();
  graph.nodes[1].arguments[0] = std::string("tile 7\n");
  const Status status = verify(graph);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("node 1 (\"softmax\", qx.tile): tile program, line 1: cannot read"));
}

TEST(TileNode, ComparesTensorsWithTheProgram) {
  Graph graph = graph_of_softmax();
  graph.nodes[1].arguments[1] = std::vector<TensorRef>{{2}, {2}};
  EXPECT_THAT(verify(graph).message(), HasSubstr("inputs: expected 1 as in the program, got 2"));
  graph.nodes[1].arguments[1] = std::vector<TensorRef>{{4}};
  EXPECT_THAT(verify(graph).message(), HasSubstr("inputs[0]: expected float32 of 2 dims, got float32[3]"));
  graph = graph_of_softmax();
  graph.values[3].type.dtype = DType::kFloat16;
  EXPECT_THAT(verify(graph).message(), HasSubstr("results[0]: expected float32 of 2 dims, got float16[n, 3]"));
}

}  // namespace
}  // namespace qx::graph
