#include "quincunx/graph/text.h"

#include <gtest/gtest.h>

#include <limits>

#include "graph/graphs.h"

namespace qx::graph {
namespace {

TEST(Text, ShowsAGraph) {
  EXPECT_EQ(to_text(small_graph()),
            "graph \"main\"\n"
            "symbol n from 1 to 64\n"
            "input %0 \"x\": float32[n, 2]\n"
            "constant %1 \"w\": float32[2, 3]\n"
            "constant %4 \"seen\": float32[3]\n"
            "state \"seen\": %4: float32[3], then %5\n"
            "%2: float32[n, 3] = aten.mm.default(%0, %1)\n"
            "%3: float32[n, 3] = aten.relu.default(%2)\n"
            "%5: float32[3] = aten.add.Tensor(%4, %4, 1)\n"
            "output %3\n");
}

TEST(Text, ShowsABrokenGraph) {
  Graph graph = small_graph();
  graph.nodes[0].results = {99};
  graph.inputs = {-7};
  graph.values[2].type.shape[0].symbol = 12;
  EXPECT_NE(to_text(graph).find("%99 = aten.mm.default"), std::string::npos);
  EXPECT_NE(to_text(graph).find("(%2)"), std::string::npos);
}

TEST(Text, ShowsSizes) {
  const Symbol symbols[] = {{.name = "n"}, {.name = "a - b"}};
  EXPECT_EQ(dim_text({.value = -3}, symbols), "-3");
  EXPECT_EQ(dim_text({.value = 0, .multiplier = 1, .symbol = 0}, symbols), "n");
  EXPECT_EQ(dim_text({.value = 4, .multiplier = 2, .symbol = 0}, symbols), "2*n + 4");
  EXPECT_EQ(dim_text({.value = -1, .multiplier = -1, .symbol = 1}, symbols), "-1*(a - b) - 1");
  EXPECT_EQ(dim_text({.value = INT64_MIN, .multiplier = 1, .symbol = 5}, symbols), "symbol5 - 9223372036854775808");
}

TEST(Text, ShowsArguments) {
  EXPECT_EQ(argument_text(std::monostate{}, {}), "none");
  EXPECT_EQ(argument_text(TensorRef{7}, {}), "%7");
  EXPECT_EQ(argument_text(std::vector<TensorRef>{{1}, {}}, {}), "[%1, none]");
  EXPECT_EQ(argument_text(true, {}), "true");
  EXPECT_EQ(argument_text(std::vector<bool>{true, false}, {}), "[true, false]");
  EXPECT_EQ(argument_text(DType::kBFloat16, {}), "bfloat16");
  EXPECT_EQ(argument_text(std::vector<Dim>{{1}, {2}}, {}), "[1, 2]");
  EXPECT_EQ(argument_text(std::vector<double>{}, {}), "[]");
  EXPECT_EQ(argument_text(std::string("a\"b\\c\n"), {}), "\"a\\\"b\\\\c\\n\"");
}

TEST(Text, ShowsNumbersThatReadBack) {
  EXPECT_EQ(argument_text(1.0, {}), "1.0");
  EXPECT_EQ(argument_text(1e-5, {}), "1e-05");
  EXPECT_EQ(argument_text(0.1, {}), "0.1");
  EXPECT_EQ(argument_text(-std::numeric_limits<double>::infinity(), {}), "-inf");
}

}  // namespace
}  // namespace qx::graph
