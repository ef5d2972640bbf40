// Where the rows of an item read and write: one row for each pixel of the output.
#pragma once

#include <cstdint>

#include "quincunx/kernels/convolution/panel_kernel.h"

namespace qx::kernels {

// An output pixel, in elements from the start of input, output and residual.
struct PanelRow {
  int64_t input;  // its tap at offset 0
  int64_t output;
  int64_t residual;
  bool is_interior;     // reads no padding
  bool is_edge_column;  // reads padding to the left or right
};

// The rows of pixels [item.pixel_begin, item.pixel_end).
void place_rows(const ConvolutionProblem& problem, const PanelItem& item, PanelRow* rows);

// The input position of row `index`'s tap at offset 0.
SpatialSizes window_position(const PanelItem& item, int64_t index);

// The first element of `segment` in the window of a row, or null where its first tap lies in the padding.
const float* window_element(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row,
                            const SpatialSizes& position, const PanelPhase::Segment& segment);

}  // namespace qx::kernels
