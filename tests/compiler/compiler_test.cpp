#include "quincunx/compiler/compiler.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "compiler/run_fusion.h"

namespace qx::compiler {
namespace {
namespace fs = std::filesystem;

constexpr double kTolerance = 2e-6;

graph::Argument ref(graph::ValueId value) { return graph::TensorRef{value}; }

FuseOptions uncached() {
  FuseOptions options;
  options.cache_directory = "none";
  return options;
}

std::string folder() {
  std::string path = (fs::temp_directory_path() / "qx-fuse-XXXXXX").string();
  return ::mkdtemp(path.data());
}

// silu(x) * y, [s0, 48].
GraphBuilder gate() {
  GraphBuilder b;
  b.graph.symbols.push_back({"s0", 0, 1 << 20});
  const auto x = b.input(DType::kFloat32, {symbolic(0), size(48)});
  const auto y = b.input(DType::kFloat32, {symbolic(0), size(48)});
  b.graph.outputs.push_back(b.binary("mul", b.unary("silu", x), y));
  return b;
}

// x * rsqrt(mean(x * x) + eps) as the operators of a model spell it.
GraphBuilder normalised() {
  GraphBuilder b;
  b.graph.symbols.push_back({"s0", 0, 1 << 20});
  const auto x = b.input(DType::kFloat32, {symbolic(0), size(100)});
  const auto centred = b.binary("sub", x, b.reduce("mean.dim", x, 1));
  const auto e = b.unary("exp", centred);
  b.graph.outputs.push_back(b.binary("mul", e, b.reduce("sum.dim_IntList", e, 1)));
  return b;
}

const ReportEntry* failure(const Fusion& fusion, const std::string& reason) {
  const auto found = std::ranges::find_if(fusion.report, [&](const ReportEntry& entry) {
    return !entry.fused && entry.reason.find(reason) != std::string::npos;
  });
  return found == fusion.report.end() ? nullptr : &*found;
}

TEST(Fuse, MakesOneRegionOfAGate) {
  const GraphBuilder b = gate();
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  const Region& region = fusion->regions[0];
  EXPECT_EQ(region.nodes, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(region.outputs, b.graph.outputs);
  EXPECT_EQ(region.inputs.size(), 2u);
  EXPECT_EQ(regionKindName(region.kind), "elementwise");
  EXPECT_TRUE(region.name.starts_with("fused_0_")) << region.name;
  for (const int64_t rows : {0, 1, 7, 300}) expectRegionsRight(b.graph, *fusion, {rows}, 1, kTolerance);
}

TEST(Fuse, MakesOneRegionOfReductionsAndWhatFollows) {
  const GraphBuilder b = normalised();
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(fusion->regions[0].nodes.size(), b.graph.nodes.size());
  EXPECT_EQ(fusion->regions[0].kind, RegionKind::kReduce);
  for (const int64_t rows : {1, 33}) expectRegionsRight(b.graph, *fusion, {rows}, 2, kTolerance);
}

TEST(Fuse, LeavesMatrixProductsAndUnknownOperatorsOutside) {
  GraphBuilder b;
  const auto x = b.input(DType::kFloat32, {size(4), size(8)});
  const auto w = b.input(DType::kFloat32, {size(8), size(8)});
  const auto before = b.unary("tanh", b.unary("neg", x));
  const auto product = b.node("aten.mm.default", {ref(before), ref(w)}, DType::kFloat32, {size(4), size(8)});
  const auto strange = b.node("other.op.default", {ref(product)}, DType::kFloat32, {size(4), size(8)});
  b.graph.outputs.push_back(b.unary("exp", b.unary("sigmoid", strange)));
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 2u);
  EXPECT_EQ(fusion->regions[0].nodes, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(fusion->regions[1].nodes, (std::vector<int32_t>{4, 5}));
  EXPECT_NE(failure(*fusion, "other.op.default is not modelled"), nullptr);
  EXPECT_NE(failure(*fusion, "a matrix product whose right operand is no weight"), nullptr);
}

// relu(x w^T + bias) + x2 with w as a weight: one region with what stands around the product.
TEST(Fuse, TakesWhatFollowsAProductWithAWeight) {
  GraphBuilder b;
  b.graph.symbols.push_back({"s0", 0, 1 << 20});
  const auto x = b.input(DType::kFloat32, {symbolic(0), size(8)});
  const auto w = b.input(DType::kFloat32, {size(6), size(8)});
  const auto bias = b.input(DType::kFloat32, {size(6)});
  const auto residual = b.input(DType::kFloat32, {symbolic(0), size(6)});
  const auto turned = b.node("aten.t.default", {ref(w)}, DType::kFloat32, {size(8), size(6)});
  const auto product = b.node("aten.addmm.default", {ref(bias), ref(x), ref(turned), size(1), size(1)}, DType::kFloat32,
                              {symbolic(0), size(6)});
  b.graph.outputs.push_back(b.binary("add", b.unary("relu", product), residual));
  FuseOptions options = uncached();
  options.weights = {w};
  const auto fusion = fuse(b.graph, options);
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(regionKindName(fusion->regions[0].kind), "product");
  EXPECT_EQ(fusion->regions[0].inputs, (std::vector<graph::ValueId>{x, w, bias, residual}));
  ASSERT_NE(fusion->regions[0].kernel->packing(), nullptr);
  EXPECT_EQ(fusion->regions[0].kernel->packing()->weight(), 1);
  options.patterns["matmul_epilogue"] = false;
  EXPECT_EQ(fuse(b.graph, options)->regions.at(0).kernel->packing(), nullptr);
  options = uncached();
  options.weights = {product};
  EXPECT_TRUE(fuse(b.graph, options).status().message().starts_with("weights has the value "));
}

TEST(Fuse, PartsRegionsByLabel) {
  const GraphBuilder b = gate();
  FuseOptions options = uncached();
  options.labels = {"gate", ""};
  const auto fusion = fuse(b.graph, options);
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(fusion->regions[0].name, "gate_0");
  EXPECT_EQ(fusion->regions[0].nodes, std::vector<int32_t>{0});
  options.labels = {"gate"};
  EXPECT_TRUE(fuse(b.graph, options).status().message().starts_with("labels has 1 entries"));
}

TEST(Fuse, KeepsViewsAtTheBorderOutside) {
  GraphBuilder b;
  const auto x = b.input(DType::kFloat32, {size(6), size(8)});
  const auto turned =
      b.node("aten.permute.default", {ref(x), std::vector{size(1), size(0)}}, DType::kFloat32, {size(8), size(6)});
  const auto y = b.unary("exp", b.unary("tanh", turned));
  b.graph.outputs.push_back(b.node("aten.view.default", {ref(y), std::vector{size(48)}}, DType::kFloat32, {size(48)}));
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(fusion->regions[0].nodes, (std::vector<int32_t>{1, 2}));
}

// Rotary embedding of heads that are a view: all but the view is one region.
TEST(Fuse, FusesRotaryEmbeddingBehindViews) {
  GraphBuilder b;
  const auto x = b.input(DType::kFloat32, {size(6), size(32)});
  const auto cosine = b.input(DType::kFloat32, {size(6), size(16)});
  const auto heads = b.node("aten.view.default", {ref(x), std::vector{size(6), size(2), size(16)}}, DType::kFloat32,
                            {size(6), size(2), size(16)});
  const std::vector<graph::Dim> shape = {size(2), size(6), size(16)};
  const auto q =
      b.node("aten.permute.default", {ref(heads), std::vector{size(1), size(0), size(2)}}, DType::kFloat32, shape);
  const auto half = [&](int64_t begin) {
    return b.node("aten.slice.Tensor", {ref(q), size(2), size(begin), size(begin + 8), size(1)}, DType::kFloat32,
                  {size(2), size(6), size(8)});
  };
  const auto low = half(0);
  const std::vector<graph::TensorRef> pieces = {{b.unary("neg", half(8))}, {low}};
  const auto turned = b.node("aten.cat.default", {pieces, size(2)}, DType::kFloat32, shape);
  const auto sine = b.input(DType::kFloat32, {size(6), size(16)});
  b.graph.outputs.push_back(b.binary("add", b.binary("mul", q, cosine), b.binary("mul", turned, sine)));
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(fusion->regions[0].nodes, (std::vector<int32_t>{2, 3, 4, 5, 6, 7, 8}));
  expectRegionsRight(b.graph, *fusion, {}, 6, kTolerance);
}

TEST(Fuse, SplitsReductionsOverDifferentDims) {
  GraphBuilder b;
  const auto x = b.input(DType::kFloat32, {size(6), size(8)});
  const auto e = b.unary("exp", b.unary("tanh", x));
  b.graph.outputs.push_back(b.reduce("sum.dim_IntList", e, 0));
  b.graph.outputs.push_back(b.reduce("sum.dim_IntList", e, 1));
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  EXPECT_FALSE(fusion->regions.empty());
  expectRegionsRight(b.graph, *fusion, {}, 3, kTolerance);
}

TEST(Fuse, WrapsIntegersAndKeepsBool) {
  GraphBuilder b;
  const auto x = b.input(DType::kInt32, {size(5)});
  const auto sum = b.binary("add", x, x);
  b.graph.outputs.push_back(b.node("aten.gt.Tensor", {ref(sum), ref(x)}, DType::kBool, {size(5)}));
  const auto fusion = fuse(b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  OwnedTensor in(DType::kInt32, {5});
  const OwnedTensor out(DType::kBool, {5});
  const std::vector<double> numbers = {2147483647, -2147483648.0, 0, 5, -5};
  for (int i = 0; i < 5; ++i) in.set(i, numbers[i]);
  ASSERT_TRUE(fusion->regions[0].kernel->run(std::vector{in.view()}, std::vector{out.view()}, {}).ok());
  const std::vector<double> expected = {0, 1, 0, 1, 0};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(out.get(i), expected[i]) << i;
}

TEST(Fuse, FindsKernelsOfAnEarlierCall) {
  const std::string cache = folder();
  FuseOptions options;
  options.cache_directory = cache;
  const CompileCounters before = compileCounters();
  ASSERT_TRUE(fuse(normalised().graph, options).ok());  // its kernels are let go
  const CompileCounters first = compileCounters();
  EXPECT_EQ(first.compiled, before.compiled + 1);
  const auto again = fuse(normalised().graph, options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(compileCounters().compiled, first.compiled);
  EXPECT_EQ(compileCounters().from_disk, first.from_disk + 1);
  expectRegionsRight(normalised().graph, *again, {3}, 4, kTolerance);
  fs::remove_all(cache);
}

TEST(Fuse, DumpsEachStage) {
  FuseOptions options = uncached();
  options.dump_directory = folder() + "/dump";
  const auto fusion = fuse(gate().graph, options);
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  const std::string name = fusion->regions.at(0).name;
  for (const std::string& file :
       {std::string("00-import.mlir"), std::string("99-regions.mlir"), name + ".loops", name + ".ll"}) {
    EXPECT_TRUE(fs::exists(options.dump_directory + "/" + file)) << file;
  }
  std::ifstream regions(options.dump_directory + "/99-regions.mlir");
  const std::string text((std::istreambuf_iterator<char>(regions)), {});
  EXPECT_NE(text.find(name), std::string::npos);
  fs::remove_all(fs::path(options.dump_directory).parent_path());
}

TEST(Fuse, ChecksEachKernelsFirstCall) {
  FuseOptions options = uncached();
  options.check = true;
  const auto fusion = fuse(normalised().graph, options);
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  expectRegionsRight(normalised().graph, *fusion, {5}, 5, kTolerance);
}

TEST(Fuse, HeedsTheSmallestRegion) {
  FuseOptions options = uncached();
  options.min_region_size = 3;
  const auto fusion = fuse(gate().graph, options);
  ASSERT_TRUE(fusion.ok());
  EXPECT_TRUE(fusion->regions.empty());
}

TEST(Fuse, NamesTheWrongOption) {
  const auto message = [](const FuseOptions& options) {
    const auto fusion = fuse(gate().graph, options);
    EXPECT_EQ(fusion.status().code(), StatusCode::kInvalidArgument);
    return fusion.status().message();
  };
  FuseOptions options = uncached();
  options.target = "abacus";
  EXPECT_TRUE(message(options).starts_with("target is \"abacus\", expected one of: llvm"));
  options = uncached();
  options.patterns["rms_nrom"] = false;
  EXPECT_TRUE(message(options).starts_with("patterns has \"rms_nrom\", expected names among: "));
  options = uncached();
  options.min_region_size = 0;
  EXPECT_EQ(message(options), "min_region_size is 0, expected 1 or more");
  options = uncached();
  options.dump_directory = "/proc/nowhere";
  EXPECT_TRUE(message(options).starts_with("dump_directory is \"/proc/nowhere\""));
}

TEST(Fuse, RefusesAGraphThatIsNone) {
  GraphBuilder b = gate();
  b.graph.nodes[0].arguments[0] = graph::TensorRef{99};
  EXPECT_EQ(fuse(b.graph, uncached()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::compiler
