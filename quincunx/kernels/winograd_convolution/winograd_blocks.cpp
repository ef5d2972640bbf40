#include "quincunx/kernels/winograd_convolution/winograd_blocks.h"

#include <algorithm>

#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Floats of transformed input that stay in the L2 cache (1 MiB) beside the products and the weights that stream past:
// 14 tiles of 64 channels. On a Zen 4 core 28 tiles were 1 to 5 % slower there, 56 tiles 20 %.
constexpr int64_t kMaxInputFloats = 32 * 1024;
// The weights are read once a block. From the L3 cache that is hidden behind 14 tiles; larger weights come from memory.
constexpr int64_t kMinBlockTiles = 14;
constexpr int64_t kMinBlockTilesFromMemory = 56;
constexpr int64_t kMaxCachedWeights = int64_t{4} << 20;  // floats
// Below this many multiply-adds a second thread costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 17;
constexpr int64_t kItemsPerThread = 4;

struct Blocks {
  int64_t tiles, count;

  WinogradBlock block(int64_t i) const { return {i * tiles / count, (i + 1) * tiles / count}; }
};

Blocks blocks_of(const WinogradProblem& problem) {
  const int64_t floats_a_tile = std::max<int64_t>(1, winograd_input_size(problem, 1));
  const int64_t weights = problem.positions() * problem.in_channels * problem.out_channels;
  const int64_t least = weights > kMaxCachedWeights ? kMinBlockTilesFromMemory : kMinBlockTiles;
  const int64_t most = std::max(least, kMaxInputFloats / floats_a_tile);
  return {problem.num_tiles(), (problem.num_tiles() + most - 1) / most};
}

int64_t threads_for(const WinogradProblem& problem) {
  const double work = static_cast<double>(problem.num_tiles()) * static_cast<double>(problem.positions()) *
                      static_cast<double>(problem.in_channels) * static_cast<double>(problem.out_channels);
  return in_parallel_region() || work < static_cast<double>(kMinParallelWork) ? 1 : num_threads();
}

// Each item transforms its block of tiles and computes all channels from it.
void convolve_by_blocks(const WinogradProblem& problem, const Blocks& blocks) {
  parallel_for(0, blocks.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const WinogradBlock block = blocks.block(i);
      const int64_t input_size = winograd_input_size(problem, block.size());
      const Workspace workspace(input_size + winograd_products_size(problem, block.size()));
      winograd_transform_input(problem, block, 0, winograd_panels(problem.in_channels), workspace.data());
      winograd_multiply(problem, block, 0, winograd_panels(problem.out_channels), workspace.data(),
                        workspace.data() + input_size);
    }
  });
}

// For fewer blocks than threads need: all input is transformed first, and the items are parts of the output channels.
void convolve_by_channels(const WinogradProblem& problem, const Blocks& blocks, int64_t threads) {
  const Workspace input(winograd_input_size(problem, blocks.tiles));
  const auto input_of = [&](const WinogradBlock& block) {
    return input.data() + winograd_input_size(problem, block.begin);
  };
  const int64_t channel_blocks = winograd_panels(problem.in_channels);
  parallel_for(0, blocks.count * channel_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const WinogradBlock block = blocks.block(i / channel_blocks);
      const int64_t channel = i % channel_blocks;
      winograd_transform_input(problem, block, channel, channel + 1, input_of(block));
    }
  });
  // Pairs of panels, as the widest kernel takes them.
  const int64_t pairs = (winograd_panels(problem.out_channels) + 1) / 2;
  const int64_t parts = std::clamp<int64_t>(kItemsPerThread * threads / blocks.count, 1, pairs);
  parallel_for(0, blocks.count * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const WinogradBlock block = blocks.block(i / parts);
      const int64_t part = i % parts;
      const int64_t panel_begin = 2 * (part * pairs / parts);
      const int64_t panel_end = std::min(winograd_panels(problem.out_channels), 2 * ((part + 1) * pairs / parts));
      const Workspace products(winograd_products_size(problem, block.size()));
      winograd_multiply(problem, block, panel_begin, panel_end, input_of(block), products.data());
    }
  });
}

}  // namespace

void winograd_convolve(const WinogradProblem& problem) {
  if (problem.num_tiles() == 0 || problem.out_channels == 0) return;
  const Blocks blocks = blocks_of(problem);
  const int64_t threads = threads_for(problem);
  if (threads > 1 && blocks.count < 2 * threads) return convolve_by_channels(problem, blocks, threads);
  convolve_by_blocks(problem, blocks);
}

}  // namespace qx::kernels
