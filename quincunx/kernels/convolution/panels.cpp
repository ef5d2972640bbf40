// Implicit matrix products: rows are output pixels, columns output channels, the inner dimension taps and channels.
#include <algorithm>
#include <vector>

#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/kernels/convolution/panel_kernel.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// The input of a block of rows takes at most so many floats (384 KiB): it stays in the L2 cache with a group of panels.
constexpr int64_t kBlockFloats = 96 << 10;
constexpr int64_t kMaxTilesPerBlock = 8;
// Below this many multiply-adds a second thread costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 17;
constexpr int64_t kItemsPerThread = 4;
// With fewer channels a run of one tap is too short to start: whole lines of taps, or copies of windows, are longer.
constexpr int64_t kMinChannelsOfRun = 16;
// Pixels a multiple of so many floats (4096 bytes) apart share a set of the L1 cache, which has fewer ways than a tile
// has rows.
constexpr int64_t kAliasedFloats = 1024;

// With fewer output channels the copy takes longer than the conflicts.
constexpr int64_t kMinApartOutChannels = 32;

WindowSource source_of(const ConvolutionProblem& problem) {
  const int64_t channels = problem.in_per_group();
  const int64_t pixel = problem.input_layout.strides[2];
  if (problem.transposed) return WindowSource::kTaps;
  if (problem.num_taps() == 1) {
    const bool is_aliased = problem.out_pixels() > 1 && pixel * problem.stride[2] % kAliasedFloats == 0;
    return is_aliased ? WindowSource::kGathered : WindowSource::kTaps;
  }
  if (channels >= kMinChannelsOfRun) return WindowSource::kTaps;
  const bool has_lines = problem.kernel[2] > 1 && problem.dilation[2] == 1 && pixel == channels &&
                         (problem.num_previous == 0 || problem.previous_layout.strides[2] == channels);
  return has_lines ? WindowSource::kLines : WindowSource::kGathered;
}

// The pixels of one dimension for which every tap lies inside of the input.
void set_interior(const ConvolutionProblem& problem, int dim, PanelPhase& phase) {
  const DimPhase& d = phase.dims[dim];
  int64_t begin = 0;
  int64_t end = d.count;
  for (const DimPhase::Tap& tap : d.taps) {
    while (begin < d.count && begin * d.input_step + tap.offset < 0) ++begin;
    while (end > 0 && (end - 1) * d.input_step + tap.offset >= problem.in[dim]) --end;
  }
  phase.interior_begin[dim] = begin;
  phase.interior_end[dim] = end;
}

PanelPhase phase_of(const ConvolutionProblem& problem, const DimPhase& z, const DimPhase& y, const DimPhase& x) {
  PanelPhase phase;
  phase.dims = {z, y, x};
  phase.source = source_of(problem);
  if (phase.source == WindowSource::kLines) phase.taps_per_segment = problem.kernel[2];
  for (int i = 0; i < kMaxSpatialDims; ++i) set_interior(problem, i, phase);
  const SpatialSizes& strides = problem.input_layout.strides;
  for (const DimPhase::Tap& a : z.taps) {
    for (const DimPhase::Tap& b : y.taps) {
      for (size_t i = 0; i < x.taps.size(); i += static_cast<size_t>(phase.taps_per_segment)) {
        const DimPhase::Tap& c = x.taps[i];
        const int64_t index = (a.index * problem.kernel[1] + b.index) * problem.kernel[2] + c.index;
        phase.segments.push_back(
            {{a.offset, b.offset, c.offset}, a.offset * strides[0] + b.offset * strides[1] + c.offset * strides[2]});
        phase.weight_offsets.push_back(index * problem.in_per_group() * kChannelBlock);
      }
    }
  }
  return phase;
}

std::vector<PanelPhase> phases_of(const ConvolutionProblem& problem) {
  const std::vector<DimPhase> depths = dim_phases(problem, 0), heights = dim_phases(problem, 1);
  const std::vector<DimPhase> widths = dim_phases(problem, 2);
  std::vector<PanelPhase> phases;
  phases.reserve(depths.size() * heights.size() * widths.size());
  for (const DimPhase& z : depths) {
    for (const DimPhase& y : heights) {
      for (const DimPhase& x : widths) phases.push_back(phase_of(problem, z, y, x));
    }
  }
  return phases;
}

// How an image's pixels and panels are cut into items.
struct Grid {
  int64_t row_blocks, panel_blocks, panels;
};

Grid grid_for(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t threads) {
  const int64_t tile = panel_tile_rows();
  const int64_t tiles = (phase.num_pixels() + tile - 1) / tile;
  const bool is_gathered = phase.source == WindowSource::kGathered;
  const int64_t row_floats = problem.in_per_group() * (is_gathered ? problem.num_taps() : 1);
  const int64_t most = std::clamp<int64_t>(kBlockFloats / (row_floats * tile), 1, kMaxTilesPerBlock);
  Grid grid{};
  grid.row_blocks = (tiles + most - 1) / most;
  grid.panels = num_channel_blocks(problem.out_per_group());
  grid.panel_blocks = 1;
  if (threads > 1) {
    const int64_t others = grid.row_blocks * problem.images * problem.groups;
    grid.panel_blocks = std::clamp<int64_t>((kItemsPerThread * threads + others - 1) / others, 1,
                                            std::max<int64_t>(1, grid.panels / 2));
  }
  return grid;
}

std::vector<PanelItem> items_of(const ConvolutionProblem& problem, const std::vector<PanelPhase>& phases,
                                int64_t threads) {
  std::vector<PanelItem> items;
  for (int64_t image = 0; image < problem.images; ++image) {
    for (const PanelPhase& phase : phases) {
      const Grid grid = grid_for(problem, phase, threads);
      const int64_t pixels = phase.num_pixels();
      for (int64_t group = 0; group < problem.groups; ++group) {
        for (int64_t row = 0; row < grid.row_blocks; ++row) {
          for (int64_t p = 0; p < grid.panel_blocks; ++p) {
            items.push_back({&phase, image, group, row * pixels / grid.row_blocks, (row + 1) * pixels / grid.row_blocks,
                             p * grid.panels / grid.panel_blocks, (p + 1) * grid.panels / grid.panel_blocks});
          }
        }
      }
    }
  }
  return items;
}

int64_t threads_for(const ConvolutionProblem& problem) {
  if (in_parallel_region()) return 1;
  const double work = static_cast<double>(problem.images) * static_cast<double>(problem.out_pixels()) *
                      static_cast<double>(problem.out_channels) * static_cast<double>(problem.in_per_group()) *
                      static_cast<double>(problem.num_taps());
  return work < static_cast<double>(kMinParallelWork) ? 1 : num_threads();
}

}  // namespace

int64_t panel_weight_size(int64_t groups, int64_t in_per_group, int64_t out_per_group, int64_t taps) {
  return groups * num_channel_blocks(out_per_group) * kChannelBlock * taps * in_per_group;
}

bool prefers_pixels_apart(const ConvolutionProblem& problem) {
  const bool is_adjacent = has_adjacent_channels(problem.input_layout, problem.in_channels);
  const int64_t pixel = is_adjacent ? problem.input_layout.strides[2] : problem.in_channels;
  const int64_t step = problem.transposed ? pixel : pixel * problem.stride[2];
  return problem.num_taps() > 1 && problem.in_per_group() >= kMinChannelsOfRun &&
         problem.out_per_group() >= kMinApartOutChannels && problem.out[2] > 1 && step % kAliasedFloats == 0;
}

void convolve_panels(const ConvolutionProblem& problem) {
  const std::vector<PanelPhase> phases = phases_of(problem);
  const int64_t threads = threads_for(problem);
  const std::vector<PanelItem> items = items_of(problem, phases, threads);
  // The tiles read whole panels of the bias.
  const Workspace padded(problem.epilogue.bias != nullptr ? problem.out_channels + kBiasPadding : 0);
  const float* bias = nullptr;
  if (problem.epilogue.bias != nullptr) {
    std::copy_n(problem.epilogue.bias, problem.out_channels, padded.data());
    std::fill_n(padded.data() + problem.out_channels, kBiasPadding, 0.0f);
    bias = padded.data();
  }
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PanelItem& item = items[static_cast<size_t>(i)];
      const Workspace workspace(panel_workspace_size(problem, *item.phase, item.pixel_end - item.pixel_begin));
      run_panel_item(problem, item, bias, workspace.data());
    }
  };
  if (threads == 1) return run(0, static_cast<int64_t>(items.size()));
  parallel_for(0, static_cast<int64_t>(items.size()), 1, run);
}

}  // namespace qx::kernels
