#include <algorithm>

#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"
#include "quincunx/kernels/winograd_convolution/winograd_points.h"

namespace qx::kernels {
namespace {

// All numbers below were found on a Zen 4 core (1 MiB L2, 32 MiB L3, AVX-512), one thread, batch 1.

// Below these the transforms, which a direct sum does not have, cost more than the multiplications saved.
constexpr int64_t kMinSide = 4;
constexpr int64_t kMinInChannels = 12;
constexpr int64_t kMinOutChannels = 16;
// Fewer output channels leave the transformed input to a single panel that is not full: large images gain 1.1 to 1.8.
constexpr int64_t kMinInChannelsOfFew = 16;
constexpr int64_t kMinSideOfFew = 28;

// Fewer tiles than this take as long, because their sums are too few to hide the latency of multiply-adds.
constexpr int64_t kMinTiles = 4;

// How many tiles could be multiplied while `weights` floats are read: none from L2, three from L3, seven from memory.
int64_t tiles_of_reading(int64_t weights) {
  if (weights > int64_t{4} << 20) return 7;
  return weights > int64_t{1} << 20 ? 3 : 0;
}

// Multiplications of each pair of channels, with the time to read the weights expressed in them.
int64_t cost(const WinogradShape& shape, int64_t output_tile) {
  const auto tiles_along = [&](int64_t size) { return (size + output_tile - 1) / output_tile; };
  const int64_t positions = winograd_positions(output_tile);
  const int64_t tiles = shape.batch * tiles_along(shape.output_height) * tiles_along(shape.output_width);
  const int64_t weights = positions * shape.in_channels * shape.out_channels;
  return positions * (std::max(kMinTiles, tiles) + tiles_of_reading(weights));
}

}  // namespace

bool prefers_winograd(const WinogradShape& shape) {
  const int64_t side = std::min(shape.output_height, shape.output_width);
  if (shape.out_channels < kMinOutChannels) return shape.in_channels >= kMinInChannelsOfFew && side >= kMinSideOfFew;
  return shape.in_channels >= kMinInChannels && side >= kMinSide;
}

int64_t winograd_output_tile(const WinogradShape& shape) { return cost(shape, 2) < cost(shape, 4) ? 2 : 4; }

}  // namespace qx::kernels
