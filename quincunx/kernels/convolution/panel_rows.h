// Where the rows of an item read and write: one row for each pixel of the output.
#pragma once

#include <cstdint>

#include "quincunx/kernels/convolution/panel_kernel.h"

namespace qx::kernels {

// An output pixel: the input position of its tap at offset 0, the elements from the start of input and output.
struct PanelRow {
  SpatialSizes position;
  int64_t input;
  int64_t output;
  int64_t residual;
  bool is_interior;     // reads no padding
  bool is_edge_column;  // reads padding to the left or right
};

// The rows of pixels [item.pixel_begin, item.pixel_end).
void place_rows(const ConvolutionProblem& problem, const PanelItem& item, PanelRow* rows);

// The first element of `segment` in the window of `row`, or null where its first tap lies in the padding.
const float* window_element(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row,
                            const PanelPhase::Segment& segment);

}  // namespace qx::kernels
