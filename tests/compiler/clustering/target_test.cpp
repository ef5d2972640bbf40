#include "quincunx/compiler/clustering/target.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/run_fusion.h"
#include "quincunx/compiler/codegen/loop_reference.h"
#include "quincunx/compiler/codegen/region_lowering.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::compiler {
namespace {

// Interprets a program; no code at all.
class InterpretedKernel : public Kernel {
 public:
  explicit InterpretedKernel(LoopProgram program) : program_(std::move(program)) {}
  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             std::span<const int64_t> symbols) const override {
    return runReference(program_, inputs, outputs, symbols);
  }
  std::string to_string() const override { return compiler::to_string(program_); }

 private:
  LoopProgram program_;
};

// A machine that knows functions of one operand only, two at a time.
class PairTarget : public Target {
 public:
  std::string_view name() const override { return "pairs"; }
  Status supports(mlir::Operation* op) const override {
    return llvm::isa<mfuse::UnaryOp>(op) ? ok_status() : unimplemented("pairs knows functions of one operand only");
  }
  Status accepts(llvm::ArrayRef<mlir::Operation*> ops) const override {
    return ops.size() <= 2 ? lowerRegion(ops).status() : unimplemented("two operations at most");
  }
  int64_t cost(mlir::Operation*) const override { return 1; }
  Result<EmittedRegion> emit(llvm::ArrayRef<mlir::Operation*> ops, const std::string&,
                             const FuseOptions&) const override {
    QX_ASSIGN_OR_RETURN(LoweredRegion region, lowerRegion(ops));
    auto kernel = std::make_shared<InterpretedKernel>(region.program);
    return EmittedRegion{region.inputs, region.outputs, kernel};
  }
};

GraphBuilder chain() {
  GraphBuilder b;
  const auto x = b.input(DType::kFloat32, {size(3), size(5)});
  graph::ValueId y = x;
  for (const char* name : {"tanh", "neg", "abs", "erf"}) y = b.unary(name, y);
  b.graph.outputs.push_back(b.binary("add", y, x));
  return b;
}

TEST(Target, DecidesTheClusters) {
  registerTarget(std::make_shared<PairTarget>());
  const GraphBuilder b = chain();
  FuseOptions options;
  options.cache_directory = "none";
  const auto whole = fuse(b.graph, options);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->regions.size(), 1u);
  EXPECT_EQ(whole->regions[0].nodes.size(), 5u);
  options.target = "pairs";
  const auto pairs = fuse(b.graph, options);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  ASSERT_EQ(pairs->regions.size(), 2u);
  EXPECT_EQ(pairs->regions[0].nodes, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(pairs->regions[1].nodes, (std::vector<int32_t>{2, 3}));
  expectRegionsRight(b.graph, *whole, {}, 1, 2e-6);
  expectRegionsRight(b.graph, *pairs, {}, 1, 2e-6);
}

// mean and softmax over the columns, and what a function of the whole adds.
GraphBuilder rows() {
  GraphBuilder b;
  b.graph.symbols.push_back({"s0", 0, 1 << 20});
  const auto x = b.input(DType::kFloat32, {size(1), symbolic(0), size(40)});
  const auto bias = b.input(DType::kFloat32, {size(40)});
  const auto centred = b.binary("sub", x, b.reduce("mean.dim", x, 2));
  const auto e = b.unary("exp", b.unary("tanh", centred));
  b.graph.outputs.push_back(b.binary("add", b.binary("mul", e, b.reduce("amax.default", e, 2)), bias));
  return b;
}

TEST(Target, TileProgramsAgreeWithMachineCode) {
  FuseOptions options;
  options.cache_directory = "none";
  options.target = "tile";
  const GraphBuilder b = rows();
  const auto fusion = fuse(b.graph, options);
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_TRUE(fusion->regions[0].kernel->to_string().starts_with("tile 1\n"));
  for (const int64_t size : {0, 1, 9}) expectRegionsRight(b.graph, *fusion, {size}, 1, 2e-6);
}

// The count of a mean over a size that is chosen later is for machine code alone: the same graph, other clusters.
TEST(Target, TileProgramsLackWhatLoopsHave) {
  GraphBuilder b;
  b.graph.symbols.push_back({"s0", 0, 1 << 20});
  const auto x = b.input(DType::kFloat32, {size(3), symbolic(0)});
  b.graph.outputs.push_back(b.unary("exp", b.binary("sub", x, b.reduce("mean.dim", x, 1))));
  FuseOptions options;
  options.cache_directory = "none";
  const auto loops = fuse(b.graph, options);
  options.target = "tile";
  const auto tiles = fuse(b.graph, options);
  ASSERT_TRUE(loops.ok() && tiles.ok());
  ASSERT_EQ(loops->regions.size(), 1u);
  EXPECT_EQ(loops->regions[0].nodes.size(), 3u);
  ASSERT_EQ(tiles->regions.size(), 1u);
  EXPECT_EQ(tiles->regions[0].nodes.size(), 2u);
  expectRegionsRight(b.graph, *loops, {7}, 2, 2e-6);
  expectRegionsRight(b.graph, *tiles, {7}, 2, 2e-6);
}

TEST(Target, SaysInTheReportWhatItLacks) {
  registerTarget(std::make_shared<PairTarget>());
  FuseOptions options;
  options.target = "pairs";
  const auto fusion = fuse(chain().graph, options);
  ASSERT_TRUE(fusion.ok());
  const auto entry =
      std::ranges::find_if(fusion->report, [](const ReportEntry& e) { return e.nodes == std::vector<int32_t>{4}; });
  ASSERT_NE(entry, fusion->report.end());
  EXPECT_FALSE(entry->fused);
  EXPECT_EQ(entry->reason, "pairs knows functions of one operand only");
}

TEST(Target, IsFoundByName) {
  EXPECT_TRUE(findTarget("llvm").ok());
  EXPECT_EQ(findTarget("none").status().code(), StatusCode::kInvalidArgument);
  const std::vector<std::string> names = targetNames();
  EXPECT_NE(std::ranges::find(names, "llvm"), names.end());
}

}  // namespace
}  // namespace qx::compiler
