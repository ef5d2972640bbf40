#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "graph/graphs.h"
#include "quincunx/graph/graph.h"

namespace qx::graph {
namespace {

using testing::HasSubstr;

TEST(Verify, AcceptsASoundGraph) {
  EXPECT_TRUE(verify(small_graph()).ok());
  EXPECT_TRUE(verify(Graph{}).ok());
}

TEST(Verify, AcceptsOperatorsThatTheTableLacks) {
  Graph graph = small_graph();
  graph.nodes[1].op = "aten.someday.default";
  graph.nodes[1].arguments = {TensorRef{2}, std::string("any"), std::vector<double>{1.0}};
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Verify, AcceptsAStateThatStartsAsZeros) {
  Graph graph = small_graph();
  graph.values[4].constant = -1;
  EXPECT_TRUE(verify(graph).ok());
}

struct Fault {
  const char* name;
  std::function<void(Graph&)> make;
  const char* message;
};

class VerifyFinds : public testing::TestWithParam<Fault> {};

TEST_P(VerifyFinds, TheFault) {
  Graph graph = small_graph();
  GetParam().make(graph);
  const Status status = verify(graph);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, VerifyFinds,
    testing::Values(
        Fault{"Range", [](Graph& g) { g.symbols[0].min = 65; }, "symbol 0 (\"n\"): expected min <= max, got 65 and 64"},
        Fault{"Symbol", [](Graph& g) { g.values[0].type.shape[0].symbol = 1; }, "value %0 (\"x\"): expected a symbol"},
        Fault{"NegativeSymbol", [](Graph& g) { g.values[0].type.shape[0].symbol = -2; }, "got -2"},
        Fault{"Multiplier", [](Graph& g) { g.values[0].type.shape[0].multiplier = 0; }, "multiplier other than 0"},
        Fault{"Size", [](Graph& g) { g.values[1].type.shape[0].value = -1; }, "sizes of at least 0, got -1"},
        Fault{"ConstantIndex", [](Graph& g) { g.values[1].constant = 2; }, "expected a constant below 2, got 2"},
        Fault{"ConstantSymbol", [](Graph& g) { g.values[1].type.shape[0].symbol = 0; }, "constant of known sizes"},
        Fault{"ConstantSize", [](Graph& g) { g.values[1].type.shape[0].value = 3; }, "needs 36 bytes at offset 0"},
        Fault{"ConstantOffset", [](Graph& g) { g.constants[0].offset_bytes = 4; }, "at offset 4, its storage has 24"},
        Fault{"NegativeOffset", [](Graph& g) { g.constants[0].offset_bytes = -4; }, "at offset -4"},
        Fault{"ConstantOverflow", [](Graph& g) { g.values[1].type.shape[1].value = INT64_MAX; }, "overflows"},
        Fault{"NoStorage", [](Graph& g) { g.constants[0].storage = nullptr; }, "has no storage"},
        Fault{"InputRange", [](Graph& g) { g.inputs = {9}; }, "inputs: expected values below 6, got 9"},
        Fault{"InputTwice", [](Graph& g) { g.inputs = {0, 0}; }, "value %0 (\"x\") is produced twice"},
        Fault{"InputConstant", [](Graph& g) { g.inputs.push_back(1); }, "value %1 (\"w\") is produced twice"},
        Fault{"NoInput", [](Graph& g) { g.inputs.clear(); }, "(\"mm\", aten.mm.default), argument 0: value %0"},
        Fault{"Order", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }, "value %2 (\"mm\") is used before"},
        Fault{"Twice", [](Graph& g) { g.nodes[1].results = {2}; }, "node 1 (\"relu\", aten.relu.default): value %2"},
        Fault{"ResultRange", [](Graph& g) { g.nodes[1].results = {-1}; }, "got -1"},
        Fault{"Never", [](Graph& g) { g.nodes.pop_back(), g.states.clear(); }, "value %5 (\"add\") is never produced"},
        Fault{"Output", [](Graph& g) { g.outputs = {-1}; }, "outputs: expected values below 6, got -1"},
        Fault{"NoOperator", [](Graph& g) { g.nodes[1].op = ""; }, "expected the name of an operator"},
        Fault{"Count", [](Graph& g) { g.nodes[2].arguments.pop_back(); }, "expected 3 arguments, got 2"},
        Fault{"Kind", [](Graph& g) { g.nodes[2].arguments[2] = std::string("one"); },
              "argument \"alpha\": expected Scalar, got \"one\""},
        Fault{"Missing", [](Graph& g) { g.nodes[0].arguments[1] = std::monostate{}; },
              "argument \"mat2\": expected Tensor, got none"},
        Fault{"Results", [](Graph& g) { g.nodes[1].results.clear(); }, "expected 1 results, got 0"},
        Fault{"ListRange", [](Graph& g) { g.nodes[1].op = "x", g.nodes[1].arguments = {std::vector<TensorRef>{{7}}}; },
              "got 7"},
        Fault{"DimRange", [](Graph& g) { g.nodes[1].op = "x", g.nodes[1].arguments = {std::vector<Dim>{{0, 1, 3}}}; },
              "got 3"},
        Fault{"StateInput", [](Graph& g) { g.states[0].input = -1; }, "state \"seen\": has no input"},
        Fault{"StateShared", [](Graph& g) { g.states.push_back(g.states[0]); }, "shares its input"},
        Fault{"StateOutput", [](Graph& g) { g.states[0].output = 6; }, "state \"seen\": expected values below 6"},
        Fault{"StateType", [](Graph& g) { g.states[0].output = 3; },
              "expected output of type float32[3], got float32[n, 3]"}),
    [](const testing::TestParamInfo<Fault>& info) { return info.param.name; });

}  // namespace
}  // namespace qx::graph
