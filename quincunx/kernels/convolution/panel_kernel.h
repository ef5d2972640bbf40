// One thread's share of an implicit matrix product: the functions that exist once for each instruction set.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// A phase of all dimensions: its output pixels, and the taps that each of them sums over.
struct PanelPhase {
  struct Tap {
    SpatialSizes offset = {};  // added to the input position of a pixel
    int64_t input_offset = 0;  // the same in elements
  };
  std::array<DimPhase, kMaxSpatialDims> dims;
  std::vector<Tap> taps;
  std::vector<int64_t> weight_offsets;  // of each tap in a panel
  // Pixels with interior_begin <= index < interior_end in each dimension read no padding.
  SpatialSizes interior_begin = {}, interior_end = {};
  // The windows' elements are copied to rows of a buffer before they are multiplied.
  bool gathers = false;

  int64_t num_pixels() const { return dims[0].count * dims[1].count * dims[2].count; }
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
