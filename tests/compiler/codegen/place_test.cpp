#include "quincunx/compiler/codegen/place.h"

#include <gtest/gtest.h>

#include "compiler/codegen/program_builder.h"

namespace qx::compiler {
namespace {

ViewDim along(std::vector<int32_t> axes, int64_t start = 0, int64_t step = 1) {
  return {std::move(axes), known(start), step};
}

graph::Dim timesSymbol(int64_t factor) { return {.value = 0, .multiplier = factor, .symbol = 0}; }

TEST(Place, MergesNeighbouringDims) {
  const std::vector<Axis> axes = {{symbol(0)}, {known(8)}};
  AxisSplit split;
  const auto place = reshapePlace({along({0}), along({1})}, {symbol(0), known(8)}, {timesSymbol(8)}, axes, split);
  ASSERT_TRUE(place);
  EXPECT_EQ(*place, (Place{along({0, 1})}));
  const auto back = reshapePlace(*place, {timesSymbol(8)}, {symbol(0), known(8)}, axes, split);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, (Place{along({0}), along({1})}));
}

TEST(Place, AsksForASplit) {
  const std::vector<Axis> axes = {{timesSymbol(6)}};
  AxisSplit split;
  EXPECT_FALSE(reshapePlace({along({0})}, {timesSymbol(6)}, {symbol(0), known(2), known(3)}, axes, split));
  EXPECT_EQ(split.axis, 0);
  EXPECT_EQ(split.sizes, (std::vector{timesSymbol(2), known(3)}));
}

TEST(Place, FollowsOneColumnOfPairs) {
  // Elements 1, 3, 5 ... of a dim of 12 are column 1 of [6, 2], and the other way round.
  const std::vector<Axis> axes = {{known(6)}};
  AxisSplit split;
  const Place odd = {along({0}, 1, 2)};
  const auto pairs = reshapePlace(odd, {known(12)}, {known(6), known(2)}, axes, split);
  ASSERT_TRUE(pairs);
  EXPECT_EQ(*pairs, (Place{along({0}), along({}, 1)}));
  EXPECT_EQ(reshapePlace(*pairs, {known(6), known(2)}, {known(12)}, axes, split), odd);
}

TEST(Place, IgnoresDimsOfOne) {
  const std::vector<Axis> axes = {{known(5)}, {known(7)}};
  AxisSplit split;
  const auto place = reshapePlace({along({0}), along({1})}, {known(5), known(7)},
                                  {known(1), known(5), known(1), known(7)}, axes, split);
  ASSERT_TRUE(place);
  EXPECT_EQ(*place, (Place{along({}), along({0}), along({}), along({1})}));
}

TEST(Place, RefusesAStretchThatCrossesRows) {
  // Columns 8 to 15 of rows of 16, counted through: no single start and step says it for several rows.
  const std::vector<Axis> axes = {{known(4)}, {known(8)}};
  AxisSplit split;
  EXPECT_FALSE(reshapePlace({along({0}), along({1}, 8)}, {known(4), known(16)}, {known(64)}, axes, split));
}

TEST(Place, DividesSizes) {
  EXPECT_EQ(divide(timesSymbol(6), known(3)), timesSymbol(2));
  EXPECT_EQ(divide(timesSymbol(6), symbol(0)), known(6));
  EXPECT_EQ(divide(known(6), known(4)), std::nullopt);
  EXPECT_EQ(divide(known(6), known(0)), std::nullopt);
  EXPECT_EQ(multiply(symbol(0), symbol(1)), std::nullopt);
}

}  // namespace
}  // namespace qx::compiler
