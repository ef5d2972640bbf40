#include "compiler/run_fusion.h"

namespace qx::compiler {
namespace {

constexpr double kTolerance = 5e-6;

FuseOptions uncached() {
  FuseOptions options;
  options.cache_directory = "none";
  return options;
}

// What a norm's backward computes of x and its gradient dy: sums over the columns for dx, over the rows for the weight.
struct Backward {
  GraphBuilder b;
  graph::ValueId x, dy, scaled;

  explicit Backward(bool costly = false) {
    b.graph.symbols.push_back({"s0", 0, 1 << 20});
    x = b.input(DType::kFloat32, {symbolic(0), size(40)});
    dy = b.input(DType::kFloat32, {symbolic(0), size(40)});
    scaled = b.binary("mul", x, dy);
    if (costly) scaled = b.unary("exp", scaled);
  }
  void add(graph::ValueId summed_over_columns) {
    b.graph.outputs.push_back(b.binary("sub", scaled, summed_over_columns));
    b.graph.outputs.push_back(b.reduce("sum.dim_IntList", scaled, 0));
  }
};

TEST(RegionParts, SumOverRowsAndColumnsInOneRegion) {
  Backward backward;
  backward.add(backward.b.reduce("sum.dim_IntList", backward.scaled, 1));
  const auto fusion = fuse(backward.b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(fusion->regions[0].outputs.size(), 2u);
  EXPECT_EQ(fusion->regions[0].inputs.size(), 2u);
  for (const int64_t rows : {1, 7, 130}) expectRegionsRight(backward.b.graph, *fusion, {rows}, 1, kTolerance);
}

TEST(RegionParts, ComputeNothingCostlyTwice) {
  Backward backward(/*costly=*/true);
  backward.add(backward.b.reduce("sum.dim_IntList", backward.scaled, 1));
  const auto fusion = fuse(backward.b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  for (const Region& region : fusion->regions) EXPECT_LT(region.nodes.size(), backward.b.graph.nodes.size());
  expectRegionsRight(backward.b.graph, *fusion, {9}, 2, kTolerance);
}

TEST(RegionParts, LeaveSumsOfSumsApart) {
  Backward backward;
  const auto columns = backward.b.reduce("sum.dim_IntList", backward.scaled, 1);
  const auto centred = backward.b.binary("sub", backward.scaled, columns);
  backward.b.graph.outputs = {centred, backward.b.reduce("sum.dim_IntList", centred, 0)};
  const auto fusion = fuse(backward.b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  for (const Region& region : fusion->regions) EXPECT_LT(region.nodes.size(), backward.b.graph.nodes.size());
  expectRegionsRight(backward.b.graph, *fusion, {9}, 3, kTolerance);
}

// The gradient of a bias reads nothing but dy.
TEST(RegionParts, TakeInReductionsThatOnlyReadTheSameInput) {
  Backward backward;
  backward.add(backward.b.reduce("sum.dim_IntList", backward.scaled, 1));
  backward.b.graph.outputs.push_back(backward.b.reduce("sum.dim_IntList", backward.dy, 0));
  const auto fusion = fuse(backward.b.graph, uncached());
  ASSERT_TRUE(fusion.ok()) << fusion.status();
  ASSERT_EQ(fusion->regions.size(), 1u);
  EXPECT_EQ(fusion->regions[0].outputs.size(), 3u);
  for (const int64_t rows : {1, 33}) expectRegionsRight(backward.b.graph, *fusion, {rows}, 4, kTolerance);
}

TEST(RegionParts, CheckTheNumberOfViews) {
  Backward backward;
  backward.add(backward.b.reduce("sum.dim_IntList", backward.scaled, 1));
  const auto fusion = fuse(backward.b.graph, uncached());
  ASSERT_TRUE(fusion.ok() && fusion->regions.size() == 1);
  EXPECT_EQ(fusion->regions[0].kernel->run({}, {}, {}).message(), "expected 2 inputs and 2 outputs, got 0 and 0");
}

}  // namespace
}  // namespace qx::compiler
