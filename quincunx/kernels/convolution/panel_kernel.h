// One thread's share of an implicit matrix product: the functions that exist once for each instruction set.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// Where the elements of a window come from.
enum class WindowSource : uint8_t {
  kTaps,      // each tap is a run of channels in the input
  kLines,     // each line of taps is a run of taps and channels, copied where it crosses the edge of the image
  kGathered,  // the whole window is copied
};

// A phase of all dimensions: its output pixels, and the runs of input elements that each of them sums over.
struct PanelPhase {
  struct Segment {
    SpatialSizes offset = {};  // of its first tap, added to the input position of a pixel
    int64_t input_offset = 0;  // the same in elements
  };
  std::array<DimPhase, kMaxSpatialDims> dims;
  WindowSource source = WindowSource::kTaps;
  std::vector<Segment> segments;
  std::vector<int64_t> weight_offsets;  // of each segment in a panel
  int64_t taps_per_segment = 1;
  // Pixels with interior_begin <= index < interior_end in each dimension read no padding.
  SpatialSizes interior_begin = {}, interior_end = {};

  int64_t num_pixels() const { return dims[0].count * dims[1].count * dims[2].count; }
  // Pixels of an output line that read padding to the left or right.
  int64_t num_edge_columns() const {
    return dims[2].count - (interior_end[2] > interior_begin[2] ? interior_end[2] - interior_begin[2] : 0);
  }
};

struct PanelItem {
  const PanelPhase* phase = nullptr;
  int64_t image = 0, group = 0;
  int64_t pixel_begin = 0, pixel_end = 0;
  int64_t panel_begin = 0, panel_end = 0;
};

// Rows of the register tiles of the instruction set that runs.
int64_t panel_tile_rows();

// Floats of scratch memory for an item of `num_pixels` pixels.
int64_t panel_workspace_size(const ConvolutionProblem& problem, const PanelPhase& phase, int64_t num_pixels);

// `bias` is contiguous with kBiasPadding readable floats behind it, or null.
inline constexpr int64_t kBiasPadding = 8 * kChannelBlock;
void run_panel_item(const ConvolutionProblem& problem, const PanelItem& item, const float* bias, float* workspace);

}  // namespace qx::kernels
