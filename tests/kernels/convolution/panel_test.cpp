#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"
#include "quincunx/kernels/convolution/panel_kernel.h"

namespace qx::kernels {
namespace {

TEST(PanelKernel, ChoosesTheTileOfTheTarget) {
  for_each_dispatch_target([] { EXPECT_GE(panel_tile_rows(), 2); });
}

TEST(PanelKernel, TakesAllNumbersOfPixelsAndChannels) {
  std::vector<ConvolutionCase> cases;
  for (const int64_t pixels : {1, 2, 3, 5, 6, 13, 14, 15, 29, 113}) {
    for (const int64_t channels : {1, 8, 9, 16, 24, 31, 130}) cases.push_back({{1, 19, pixels}, channels, {1}});
  }
  expect_all(cases);
}

TEST(PanelKernel, GathersFewChannelsAndAliasedPixels) {
  expect_all({{{1, 3, 20, 9}, 5, {7, 7}, geometry({2, 2}, {3, 3}, {3, 3})},
              {{1, 4, 6, 6}, 20, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, {2, 2})},
              {{1, 3, 5, 2}, 5, {3, 5}, geometry({1, 1}, {1, 3}, {1, 2})},
              {{1, 1, 5, 7}, 3, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1})},
              {{1, 1024, 3, 2}, 3, {1, 1}}});
}

bool is_copied_apart(const ConvolutionCase& c) {
  RandomConvolution test(c);
  return prefers_pixels_apart(checked_problem(test.input(), test.pack(), test.output(), test.options).value());
}

TEST(PanelKernel, CopiesPixelsThatShareCacheSetsApart) {
  const auto strided = geometry({2, 2}, {1, 1}, {1, 1});
  const ConvolutionCase aliased{{2, 512, 5, 6}, 33, {3, 3}, strided, true};
  EXPECT_TRUE(is_copied_apart(aliased));
  EXPECT_TRUE(is_copied_apart({{1, 1024, 2, 3}, 32, {1, 2}, {}, false})) << "the copy that it passes through";
  EXPECT_FALSE(is_copied_apart({{1, 512, 5, 6}, 31, {3, 3}, strided, true})) << "too few output channels";
  EXPECT_FALSE(is_copied_apart({{1, 480, 5, 6}, 33, {3, 3}, strided, true}));
  EXPECT_FALSE(is_copied_apart({{1, 1024, 3, 2}, 33, {1, 1}, {}, true})) << "one tap is gathered";
  expect_all({aliased,
              {{1, 1024, 2, 3}, 32, {1, 2}},
              {{1, 2048, 2, 3}, 64, {2, 2}, geometry({1, 1}, {1, 1}, {0, 0}, {1, 1}, 2)}});
}

TEST(PanelKernel, TakesManyTilesOfResidentWeights) {
  // Rows that arrive while the tile before is computed, in one group of panels and in several.
  expect_all({{{1, 150, 67}, 20, {1}}, {{2, 40, 5, 31}, 130, {1, 1}, {}, true}});
}

}  // namespace
}  // namespace qx::kernels
