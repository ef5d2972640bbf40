#include "quincunx/compiler/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compiler/import/graph_from_bytes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/transforms/patterns.h"

namespace qx::compiler {
namespace {

using graph::Argument;
using graph::TensorRef;
using graph::ValueId;
using testing::HasSubstr;

Argument ref(ValueId value) { return TensorRef{value}; }

class Import : public testing::Test {
 protected:
  Import() { loadDialects(context_); }

  // The module as text; operations as they are printed without locations.
  std::string text(const graph::Graph& graph) {
    module_ = importGraph(graph, context_).value();
    EXPECT_TRUE(mlir::succeeded(mlir::verify(*module_)));
    std::string printed;
    llvm::raw_string_ostream stream(printed);
    module_->print(stream);
    return printed;
  }
  mlir::func::FuncOp function() { return module_->lookupSymbol<mlir::func::FuncOp>("main"); }

  mlir::MLIRContext context_{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  GraphBuilder b_;
};

TEST_F(Import, KeepsSymbolicSizesAndOrigins) {
  b_.graph.symbols = {{"s0", 1, 64}};
  ValueId x = b_.input(DType::kFloat32, {symbolic(0), size(8)});
  ValueId y = b_.unary("exp", x);
  b_.graph.outputs = {y};
  EXPECT_THAT(text(b_.graph), HasSubstr("mfuse.unary exp %arg0 : (tensor<?x8xf32, #map>) -> tensor<?x8xf32, #map>"));
  EXPECT_EQ(mfuse::sourceValue(function().getArgument(0)), x);
  mlir::Operation& exp = function().getBody().front().front();
  EXPECT_EQ(mfuse::sourceValue(exp.getResult(0)), y);
  EXPECT_THAT(mfuse::sourceNodes(&exp), testing::ElementsAre(0));
}

TEST_F(Import, ScalarsKeepTheirPrecisionBesideHalves) {
  ValueId x = b_.input(DType::kBFloat16, {size(4)});
  b_.graph.outputs = {b_.node("aten.mul.Tensor", {ref(x), 0.1}, DType::kBFloat16, {size(4)})};
  EXPECT_THAT(text(b_.graph), HasSubstr("mfuse.binary mul %arg0, %0 : (tensor<4xbf16>, f64) -> tensor<4xbf16>"));
}

TEST_F(Import, PromotesOperandsByCasts) {
  ValueId x = b_.input(DType::kInt64, {size(4)});
  ValueId y = b_.input(DType::kFloat16, {size(4)});
  b_.graph.outputs = {b_.node("aten.add.Tensor", {ref(x), ref(y), size(1)}, DType::kFloat16, {size(4)})};
  std::string printed = text(b_.graph);
  EXPECT_THAT(printed, HasSubstr("mfuse.cast %arg0 : (tensor<4xi64>) -> tensor<4xf16>"));
}

TEST_F(Import, AnotherAlphaIsAFactorOfItsOwn) {
  ValueId x = b_.input(DType::kFloat32, {size(4)});
  b_.graph.outputs = {b_.node("aten.add.Tensor", {ref(x), ref(x), size(3)}, DType::kFloat32, {size(4)})};
  EXPECT_THAT(text(b_.graph), HasSubstr("mfuse.binary mul %arg0"));
}

TEST_F(Import, UnknownOperatorsAndArgumentsStayOpaque) {
  ValueId x = b_.input(DType::kFloat32, {size(4), size(4)});
  ValueId y = b_.node("my.operator.default", {ref(x), std::string("mode")}, DType::kFloat32, {size(2)});
  ValueId z =
      b_.node("aten.slice.Tensor", {ref(x), size(0), {}, size(2), size(-1)}, DType::kFloat32, {size(2), size(4)});
  b_.graph.outputs = {y, z};
  std::string printed = text(b_.graph);
  EXPECT_THAT(printed, HasSubstr("mfuse.opaque \"my.operator.default\" node 0(%arg0)"));
  EXPECT_THAT(printed, HasSubstr("mfuse.opaque \"aten.slice.Tensor\" node 1(%arg0)"));
  EXPECT_THAT(printed, HasSubstr("mfuse does not model aten.slice.Tensor with these arguments"));
}

TEST_F(Import, ResultTypesThatContradictTheOperandsStayOpaque) {
  ValueId x = b_.input(DType::kFloat32, {size(4)});
  b_.graph.outputs = {b_.node("aten.exp.default", {ref(x)}, DType::kFloat32, {size(5)})};
  EXPECT_THAT(text(b_.graph), HasSubstr("mfuse.opaque \"aten.exp.default\""));
}

TEST_F(Import, ReadsAfterAWriteAreReadAnew) {
  ValueId x = b_.input(DType::kFloat32, {size(2), size(2)});
  ValueId view = b_.node("aten.view.default", {ref(x), std::vector<graph::Dim>{size(4)}}, DType::kFloat32, {size(4)});
  ValueId before = b_.unary("exp", view);
  b_.node("aten.add_.Tensor", {ref(x), ref(x), size(1)}, DType::kFloat32, {size(2), size(2)});
  ValueId after = b_.unary("exp", view);
  b_.graph.outputs = {before, after};
  std::string printed = text(b_.graph);
  EXPECT_THAT(printed, HasSubstr("mfuse.opaque \"aten.add_.Tensor\" node 2 writes"));
  EXPECT_THAT(printed, HasSubstr("mfuse.reload %0 epoch 1 : tensor<4xf32>"));
}

TEST_F(Import, CopiesOfWrittenMemoryStayCopies) {
  ValueId x = b_.input(DType::kFloat32, {size(4)});
  ValueId copy = b_.node("aten.clone.default", {ref(x), {}}, DType::kFloat32, {size(4)});
  b_.node("aten.add_.Tensor", {ref(x), ref(x), size(1)}, DType::kFloat32, {size(4)});
  b_.graph.outputs = {b_.unary("exp", copy)};
  std::string printed = text(b_.graph);
  EXPECT_THAT(printed, HasSubstr("mfuse.opaque \"aten.clone.default\""));
  EXPECT_THAT(printed, testing::Not(HasSubstr("reload")));
}

TEST_F(Import, InvalidGraphsAreRefusedByName) {
  b_.graph.outputs = {7};
  auto module = importGraph(b_.graph, context_);
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument);
}

// x * rsqrt(mean(x^2) + eps) * w in PyTorch's operators.
ValueId rmsNorm(GraphBuilder& b, ValueId x, ValueId weight, int64_t rows, int64_t columns) {
  ValueId square = b.node("aten.pow.Tensor_Scalar", {ref(x), size(2)}, DType::kFloat32, {size(rows), size(columns)});
  ValueId mean = b.reduce("mean.dim", square, 1);
  ValueId sum = b.node("aten.add.Tensor", {ref(mean), 1e-6, size(1)}, DType::kFloat32, {size(rows), size(1)});
  return b.binary("mul", b.binary("mul", x, b.unary("rsqrt", sum)), weight);
}

TEST_F(Import, PatternsReportTheNodesTheyStandFor) {
  ValueId x = b_.input(DType::kFloat32, {size(4), size(8)});
  ValueId w = b_.input(DType::kFloat32, {size(8)});
  ValueId y = rmsNorm(b_, x, w, 4, 8);
  b_.graph.outputs = {y};
  text(b_.graph);
  std::vector<Candidate> candidates;
  ASSERT_TRUE(runPatterns(*module_, {}, candidates).ok());
  mlir::Operation& norm = function().getBody().front().front();
  ASSERT_TRUE(llvm::isa<mfuse::RmsNormOp>(norm));
  EXPECT_THAT(mfuse::sourceNodes(&norm), testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(mfuse::sourceValue(norm.getResult(0)), y);
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[0].pattern, "rms_norm");
  EXPECT_TRUE(candidates[0].fused);
  EXPECT_THAT(candidates[0].nodes, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(Import, PatternsCanBeSwitchedOffByName) {
  ValueId x = b_.input(DType::kFloat32, {size(4), size(8)});
  ValueId w = b_.input(DType::kFloat32, {size(8)});
  b_.graph.outputs = {rmsNorm(b_, x, w, 4, 8)};
  text(b_.graph);
  std::vector<Candidate> candidates;
  PatternOptions options;
  options.enabled = {{"rms_norm", false}};
  ASSERT_TRUE(runPatterns(*module_, options, candidates).ok());
  EXPECT_TRUE(candidates.empty());
  options.enabled = {{"no_such_pattern", true}};
  Status status = runPatterns(*module_, options, candidates);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("no_such_pattern"));
  EXPECT_THAT(status.message(), HasSubstr("rms_norm"));
}

TEST_F(Import, ExportWritesWhatWasImported) {
  b_.graph.symbols = {{"s0", 1, 64}};
  ValueId x = b_.input(DType::kFloat32, {symbolic(0), size(8)});
  ValueId y = b_.binary("mul", b_.unary("exp", x), x);
  ValueId z = b_.node("my.operator.default", {ref(y), 2.5}, DType::kFloat32, {symbolic(0), size(8)});
  b_.graph.outputs = {b_.reduce("sum.dim_IntList", z, 1)};
  text(b_.graph);
  auto exported = exportGraph(*module_, b_.graph);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(graph::to_text(*exported), graph::to_text(b_.graph));
}

TEST_F(Import, ExportWritesCompositesAsPyTorchsOperators) {
  ValueId x = b_.input(DType::kFloat32, {size(4), size(8)});
  ValueId w = b_.input(DType::kFloat32, {size(8)});
  b_.graph.outputs = {rmsNorm(b_, x, w, 4, 8)};
  text(b_.graph);
  std::vector<Candidate> candidates;
  ASSERT_TRUE(runPatterns(*module_, {}, candidates).ok());
  auto exported = exportGraph(*module_, b_.graph);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(graph::to_text(*exported), HasSubstr("aten.rms_norm.default"));
  EXPECT_EQ(exported->nodes.size(), 1u);
}

TEST_F(Import, SurvivesArbitraryGraphs) {
  std::mt19937 random(7);
  int imported = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<uint8_t> bytes(200);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    GraphFromBytes source(bytes);
    auto module = importGraph(source.graph(), context_);
    if (!module.ok()) continue;
    ++imported;
    ASSERT_TRUE(mlir::succeeded(mlir::verify(module->get()))) << graph::to_text(source.graph());
    std::vector<Candidate> candidates;
    PatternOptions options;
    options.decompose = trial % 2 == 0;
    ASSERT_TRUE(runPatterns(module->get(), options, candidates).ok()) << graph::to_text(source.graph());
    auto exported = exportGraph(module->get(), source.graph());
    EXPECT_TRUE(exported.ok() || exported.status().code() == StatusCode::kUnimplemented)
        << exported.status() << "\n"
        << graph::to_text(source.graph());
  }
  EXPECT_GT(imported, 50);
}

}  // namespace
}  // namespace qx::compiler
