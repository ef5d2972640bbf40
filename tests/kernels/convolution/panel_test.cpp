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

}  // namespace
}  // namespace qx::kernels
