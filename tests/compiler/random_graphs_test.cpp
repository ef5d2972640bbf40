#include <gtest/gtest.h>

#include <random>

#include "compiler/run_fusion.h"

namespace qx::compiler {
namespace {

constexpr int kGraphs = 500;
// Inputs are rounded to f32 and up to ten operations follow, each of which may double a relative error.
constexpr double kTolerance = 1e-4;

graph::Argument ref(graph::ValueId value) { return graph::TensorRef{value}; }

// Grows a graph whose values have the shape [rows, s0, columns], or 1 in some of these places, or a part of it.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed), columns_(2 * pick(1, 20)) {
    b_.graph.symbols.push_back({"s0", 0, 1 << 20});
    full_ = {size(pick(1, 4)), symbolic(0), size(columns_)};
    values_.push_back(b_.input(DType::kFloat32, full_));
    values_.push_back(b_.input(DType::kFloat32, full_));
    values_.push_back(b_.input(DType::kFloat32, {size(columns_)}));
    const int count = pick(3, 10);
    for (int i = 0; i < count; ++i) grow();
    b_.graph.outputs.push_back(values_.back());
    b_.graph.outputs.push_back(values_[pick(3, static_cast<int>(values_.size()) - 1)]);
  }
  const graph::Graph& graph() const { return b_.graph; }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  graph::ValueId any() { return values_[pick(0, static_cast<int>(values_.size()) - 1)]; }
  bool isFull(graph::ValueId value) const { return b_.type(value).shape == full_; }
  graph::ValueId anyFull() {
    graph::ValueId value = any();
    while (!isFull(value)) value = any();
    return value;
  }
  bool broadcasts(graph::ValueId value) const {
    const auto& shape = b_.type(value).shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (!(shape[i] == size(1)) && !(shape[i] == full_[full_.size() - shape.size() + i])) return false;
    }
    return true;
  }

  void grow() {
    static const char* const kUnary[] = {"tanh", "sigmoid", "erf", "relu", "neg", "abs", "sin", "exp", "silu"};
    static const char* const kBinary[] = {"add", "sub", "mul", "add", "mul"};
    static const char* const kReduce[] = {"sum.dim_IntList", "mean.dim", "amax.default"};
    switch (pick(0, 9)) {
      case 0:
      case 1:
      case 2: {
        // Bounded first, so that nothing overflows.
        const graph::ValueId bounded = b_.unary("tanh", any());
        values_.push_back(bounded);
        values_.push_back(b_.unary(kUnary[pick(0, 8)], bounded));
        return;
      }
      case 3: values_.push_back(b_.reduce(kReduce[pick(0, 2)], b_.unary("tanh", anyFull()), pick(0, 2))); return;
      case 4: rotate(); return;
      case 5: reshape(); return;
      case 6: {
        const graph::ValueId x = anyFull();
        values_.push_back(
            b_.node("aten._softmax.default", {ref(x), size(pick(0, 1) + 1), false}, DType::kFloat32, full_));
        return;
      }
      default: {
        const graph::ValueId other = any();
        if (broadcasts(other)) values_.push_back(b_.binary(kBinary[pick(0, 4)], anyFull(), other));
      }
    }
  }

  // cat(-x[..., half:], x[..., :half])
  void rotate() {
    const graph::ValueId x = anyFull();
    const int64_t half = columns_ / 2;
    auto shape = full_;
    shape[2] = size(half);
    const auto slice = [&](int64_t begin) {
      return b_.node("aten.slice.Tensor", {ref(x), size(2), size(begin), size(begin + half), size(1)}, DType::kFloat32,
                     shape);
    };
    const graph::ValueId low = slice(0);
    const graph::ValueId high = b_.unary("neg", slice(half));
    const std::vector<graph::TensorRef> pieces = {{high}, {low}};
    values_.push_back(b_.node("aten.cat.default", {pieces, size(2)}, DType::kFloat32, full_));
  }

  // tanh of a view with the columns in pairs, seen from the side, and back.
  void reshape() {
    const graph::ValueId x = anyFull();
    const std::vector<graph::Dim> pairs = {full_[0], full_[1], size(columns_ / 2), size(2)};
    const std::vector<graph::Dim> turned = {full_[1], full_[0], size(2), size(columns_ / 2)};
    const std::vector<graph::Dim> there = {size(1), size(0), size(3), size(2)};
    const graph::ValueId view = b_.node("aten.view.default", {ref(x), pairs}, DType::kFloat32, pairs);
    const graph::ValueId side = b_.node("aten.permute.default", {ref(view), there}, DType::kFloat32, turned);
    const graph::ValueId y = b_.unary("tanh", side);
    const graph::ValueId back = b_.node("aten.permute.default", {ref(y), there}, DType::kFloat32, pairs);
    values_.push_back(b_.node("aten.view.default", {ref(back), full_}, DType::kFloat32, full_));
  }

  std::mt19937 random_;
  int64_t columns_;
  GraphBuilder b_;
  std::vector<graph::Dim> full_;
  std::vector<graph::ValueId> values_;
};

TEST(RandomGraphs, AgreeWithF64) {
  FuseOptions options;
  options.cache_directory = "none";
  int64_t regions = 0;
  int64_t nodes = 0;
  int64_t covered = 0;
  for (int seed = 0; seed < kGraphs; ++seed) {
    const RandomGraph random(seed);
    const auto fusion = fuse(random.graph(), options);
    ASSERT_TRUE(fusion.ok()) << fusion.status() << "\n" << graph::to_text(random.graph());
    for (const int64_t rows : {1, 5}) {
      expectRegionsRight(random.graph(), *fusion, {rows}, static_cast<uint64_t>(seed), kTolerance);
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    }
    regions += static_cast<int64_t>(fusion->regions.size());
    nodes += static_cast<int64_t>(random.graph().nodes.size());
    for (const Region& region : fusion->regions) covered += static_cast<int64_t>(region.nodes.size());
  }
  // A compiler that fuses nothing is right too: most of these nodes can be fused.
  EXPECT_GT(regions, kGraphs / 2);
  EXPECT_GT(covered, nodes / 2);
}

TEST(RandomGraphs, AgreeWithF64AsTilePrograms) {
  FuseOptions options;
  options.target = "tile";
  int64_t regions = 0;
  for (int seed = 0; seed < kGraphs; ++seed) {
    const RandomGraph random(seed);
    const auto fusion = fuse(random.graph(), options);
    ASSERT_TRUE(fusion.ok()) << fusion.status();
    expectRegionsRight(random.graph(), *fusion, {3}, static_cast<uint64_t>(seed), kTolerance);
    if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    regions += static_cast<int64_t>(fusion->regions.size());
  }
  EXPECT_GT(regions, kGraphs / 4);
}

}  // namespace
}  // namespace qx::compiler
