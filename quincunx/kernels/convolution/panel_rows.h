// Where the rows of an item read and write: one row for each pixel of the output.
#pragma once

#include <cstdint>

#include "quincunx/kernels/convolution/panel_kernel.h"

namespace qx::kernels {

// An output pixel: the input position of its tap at offset 0, the elements from the start of input and output.
struct PanelRow {
  SpatialSizes position;
  int64_t input = 0;
  int64_t output = 0;
  int64_t residual = 0;
  bool is_interior = false;
};

// Steps through the pixels of a phase in row-major order.
class PanelRowCursor {
 public:
  PanelRowCursor(const ConvolutionProblem& problem, const PanelItem& item, int64_t pixel);
  PanelRow row() const;
  void advance();

 private:
  const ConvolutionProblem& problem_;
  const PanelPhase& phase_;
  int64_t input_base_, output_base_, residual_base_;
  SpatialSizes index_;
};

// The element that `tap` of `row` reads first; `zeros` where it lies in the padding.
const float* window_element(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row,
                            const PanelPhase::Tap& tap, const float* zeros);

// Copies the windows' elements, tap by tap.
void gather_window(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row, float* elements);

}  // namespace qx::kernels
