#include "quincunx/kernels/convolution/panel_rows.h"

#include <algorithm>
#include <cstring>

namespace qx::kernels {

PanelRowCursor::PanelRowCursor(const ConvolutionProblem& problem, const PanelItem& item, int64_t pixel)
    : problem_(problem), phase_(*item.phase) {
  input_base_ = item.image * problem.input_layout.image_stride + item.group * problem.in_per_group();
  const int64_t channel = item.group * problem.out_per_group();
  const auto base = [&](const ImageLayout& layout) {
    int64_t offset = item.image * layout.image_stride + channel * layout.channel_stride;
    for (int i = 0; i < kMaxSpatialDims; ++i) offset += phase_.dims[i].first * layout.strides[i];
    return offset;
  };
  output_base_ = base(problem.output_layout);
  residual_base_ = base(problem.epilogue.residual_layout);
  const int64_t width = phase_.dims[2].count;
  const int64_t height = phase_.dims[1].count;
  index_ = {pixel / (width * height), pixel / width % height, pixel % width};
}

PanelRow PanelRowCursor::row() const {
  PanelRow row;
  row.input = input_base_;
  row.output = output_base_;
  row.residual = residual_base_;
  row.is_interior = true;
  for (int i = 0; i < kMaxSpatialDims; ++i) {
    const DimPhase& dim = phase_.dims[i];
    row.position[i] = index_[i] * dim.input_step;
    row.input += row.position[i] * problem_.input_layout.strides[i];
    row.output += index_[i] * dim.step * problem_.output_layout.strides[i];
    row.residual += index_[i] * dim.step * problem_.epilogue.residual_layout.strides[i];
    row.is_interior = row.is_interior && index_[i] >= phase_.interior_begin[i] && index_[i] < phase_.interior_end[i];
  }
  return row;
}

void PanelRowCursor::advance() {
  for (int i = kMaxSpatialDims - 1; i >= 0; --i) {
    if (++index_[i] < phase_.dims[i].count || i == 0) return;
    index_[i] = 0;
  }
}

const float* window_element(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row,
                            const PanelPhase::Tap& tap, const float* zeros) {
  const int64_t z = row.position[0] + tap.offset[0];
  const int64_t y = row.position[1] + tap.offset[1];
  const int64_t x = row.position[2] + tap.offset[2];
  if (y < 0 || y >= problem.in[1] || x < 0 || x >= problem.in[2] || z >= problem.in[0]) return zeros;
  if (z >= 0) return problem.input + row.input + tap.input_offset;
  if (z < -problem.num_previous) return zeros;
  const ImageLayout& layout = problem.previous_layout;
  return problem.previous + item.image * layout.image_stride + item.group * problem.in_per_group() +
         (problem.num_previous + z) * layout.strides[0] + y * layout.strides[1] + x * layout.strides[2];
}

void gather_window(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row, float* elements) {
  const int64_t channels = problem.in_per_group();
  const auto& taps = item.phase->taps;
  // A line of taps is one run of memory where it is dense and inside of the image.
  const int64_t line = problem.kernel[2];
  const bool has_lines =
      row.is_interior && problem.dilation[2] == 1 && problem.input_layout.strides[2] == channels && !problem.transposed;
  const int64_t run = has_lines ? line * channels : channels;
  for (size_t t = 0; t < taps.size(); t += static_cast<size_t>(has_lines ? line : 1)) {
    const float* source = window_element(problem, item, row, taps[t], nullptr);
    if (source == nullptr) {
      std::fill_n(elements, run, 0.0f);
    } else if (run < 8) {
      for (int64_t i = 0; i < run; ++i) elements[i] = source[i];
    } else {
      std::memcpy(elements, source, static_cast<size_t>(run) * sizeof(float));
    }
    elements += run;
  }
}

}  // namespace qx::kernels
