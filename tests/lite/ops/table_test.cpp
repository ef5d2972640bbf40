// The table of operators and the checks that stand before every call.
#include <gtest/gtest.h>

#include "lite/graph_builder.h"
#include "quincunx/graph/schema.h"
#include "quincunx/lite/ops/operator.h"

namespace qx::lite {
namespace {

constexpr DType kF32 = DType::kFloat32;

TEST(OperatorTable, GivesEachRowARunAndASignature) {
  const std::vector<std::string_view> names = operator_names();
  EXPECT_GT(names.size(), 250u);
  for (const std::string_view name : names) {
    const Operator* entry = find_operator(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_NE(entry->run, nullptr) << name;
    EXPECT_FALSE(entry->signature.empty()) << name;
  }
  EXPECT_EQ(find_operator("aten.add"), nullptr);
}

TEST(OperatorTable, HasAsManyArgumentsAsTheSchema) {
  for (const std::string_view name : operator_names()) {
    const graph::OperatorSchema* schema = graph::find_schema(name);
    if (schema == nullptr) continue;
    EXPECT_EQ(find_operator(name)->signature.size(), schema->arguments.size()) << name;
  }
}

Status signature_status(const std::string& op, std::vector<graph::Argument> arguments,
                        std::vector<graph::ValueId> results) {
  return check_signature({op, "node", std::move(arguments), std::move(results)}, *find_operator(op));
}

TEST(CheckSignature, NamesTheNodeAndTheArgument) {
  EXPECT_TRUE(signature_status("aten.relu.default", {ref(0)}, {1}).ok());
  EXPECT_EQ(signature_status("aten.relu.default", {}, {1}).message(),
            "node 'node' (aten.relu.default): argument 0 must be a tensor");
  EXPECT_EQ(signature_status("aten.relu.default", {2.0}, {1}).message(),
            "node 'node' (aten.relu.default): argument 0 must be a tensor");
  EXPECT_EQ(signature_status("aten.relu.default", {ref(graph::kNoValue)}, {1}).message(),
            "node 'node' (aten.relu.default): argument 0 must be a tensor");
  EXPECT_EQ(signature_status("aten.relu.default", {ref(0), ref(0)}, {1}).message(),
            "node 'node' (aten.relu.default): expected at most 1 arguments, got 2");
  EXPECT_EQ(signature_status("aten.relu.default", {ref(0)}, {}).message(),
            "node 'node' (aten.relu.default): has no result");
  EXPECT_EQ(signature_status("aten.permute.default", {ref(0), std::string("x")}, {1}).message(),
            "node 'node' (aten.permute.default): argument 1 must be a list of integers");
  EXPECT_EQ(signature_status("aten.cat.default", {std::vector{ref(0), ref(graph::kNoValue)}}, {1}).message(),
            "node 'node' (aten.cat.default): argument 0 must be a list of tensors");
}

// A graph of one call on float32 [2, 3], whose declared result is `shape`.
Status run_one(const std::string& op, std::vector<graph::Argument> rest, const std::vector<int64_t>& shape) {
  GraphBuilder builder;
  const auto x = builder.input("x", kF32, {known(2), known(3)});
  std::vector<graph::Argument> arguments = {ref(x)};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  std::vector<graph::Dim> dims;
  for (const int64_t size : shape) dims.push_back(known(size));
  builder.output(builder.call(op, std::move(arguments), kF32, dims));
  std::vector<float> values(6, 1);
  return run_graph(builder.graph(), {view_of(values, {2, 3})}).status();
}

// A graph that declares a shape that its operator does not give must end in an error, not in foreign memory.
TEST(Operators, RefuseResultsThatDoNotFit) {
  const std::vector<graph::Dim> eight = {known(8)};
  EXPECT_TRUE(run_one("aten.relu.default", {}, {2, 3}).ok());
  EXPECT_FALSE(run_one("aten.relu.default", {}, {3}).ok());
  EXPECT_FALSE(run_one("aten.relu.default", {}, {2, 2}).ok());
  EXPECT_FALSE(run_one("aten.view.default", {eight}, {8}).ok());
  EXPECT_FALSE(run_one("aten.permute.default", {std::vector{known(0), known(0)}}, {2, 2}).ok());
  EXPECT_FALSE(run_one("aten.permute.default", {std::vector{known(1), known(0)}}, {2, 3}).ok());
  EXPECT_FALSE(run_one("aten.sum.dim_IntList", {std::vector{known(1)}, false, std::monostate()}, {3}).ok());
  EXPECT_FALSE(run_one("aten.softmax.int", {known(1), std::monostate()}, {3, 2}).ok());
  EXPECT_FALSE(run_one("aten.cumsum.default", {known(1), std::monostate()}, {2, 4}).ok());
  EXPECT_FALSE(run_one("aten.repeat.default", {std::vector{known(2), known(1)}}, {5, 3}).ok());
  EXPECT_FALSE(run_one("aten.constant_pad_nd.default", {std::vector{known(1), known(1)}, known(0)}, {2, 4}).ok());
  EXPECT_FALSE(run_one("aten.unsqueeze.default", {known(5)}, {2, 3, 1}).ok());
  EXPECT_FALSE(run_one("aten.select.int", {known(0), known(2)}, {3}).ok());
}

TEST(Operators, DivideNoIntegerByZero) {
  GraphBuilder builder;
  const auto x = builder.input("x", DType::kInt64, {known(3)});
  const auto y = builder.input("y", DType::kInt64, {known(3)});
  builder.output(
      builder.call("aten.div.Tensor_mode", {ref(x), ref(y), std::string("floor")}, DType::kInt64, {known(3)}));
  std::vector<int64_t> a = {INT64_MIN, 7, -7}, b = {-1, 2, 0};
  const Status status = run_graph(builder.graph(), {view_of(a, {3}), view_of(b, {3})}).status();
  EXPECT_EQ(status.message(), "method 'forward', node 'n0' (aten.div.Tensor_mode): division of integers by zero");
  b[2] = 2;
  const auto outputs = run_graph(builder.graph(), {view_of(a, {3}), view_of(b, {3})}).value();
  EXPECT_EQ(values_of<int64_t>(outputs[0]), (std::vector<int64_t>{INT64_MIN, 3, -4})) << "integers wrap";
}

TEST(Operators, RefuseIndicesOutsideOfTheirTable) {
  GraphBuilder builder;
  const auto table = builder.input("table", kF32, {known(3), known(2)});
  const auto index = builder.input("index", DType::kInt64, {known(1)});
  builder.output(builder.call("aten.embedding.default", {ref(table), ref(index), known(-1), false, false}, kF32,
                              {known(1), known(2)}));
  std::vector<float> rows(6);
  for (const int64_t at : {int64_t{-1}, int64_t{3}, INT64_MIN}) {
    std::vector<int64_t> indices = {at};
    EXPECT_EQ(
        run_graph(builder.graph(), {view_of(rows, {3, 2}), view_of(indices, {1})}).status().message(),
        "method 'forward', node 'n0' (aten.embedding.default): indices: expected 0 to 2, got " + std::to_string(at));
  }
}

}  // namespace
}  // namespace qx::lite
