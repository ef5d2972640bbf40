#include "quincunx/kernels/convolution/panel_rows.h"

#include <algorithm>

namespace qx::kernels {
namespace {

// The first pixel of output line (z, y) of the phase.
PanelRow line_start(const ConvolutionProblem& problem, const PanelItem& item, int64_t z, int64_t y) {
  const PanelPhase& phase = *item.phase;
  const SpatialSizes index = {z, y, 0};
  const int64_t channel = item.group * problem.out_per_group();
  const ImageLayout& output = problem.output_layout;
  const ImageLayout& residual = problem.epilogue.residual_layout;
  PanelRow row;
  row.input = item.image * problem.input_layout.image_stride + item.group * problem.in_per_group();
  row.output = item.image * output.image_stride + channel * output.channel_stride;
  row.residual = item.image * residual.image_stride + channel * residual.channel_stride;
  row.is_interior = true;
  row.is_edge_column = false;
  for (int i = 0; i < kMaxSpatialDims; ++i) {
    const DimPhase& dim = phase.dims[i];
    row.input += index[i] * dim.input_step * problem.input_layout.strides[i];
    row.output += (dim.first + index[i] * dim.step) * output.strides[i];
    row.residual += (dim.first + index[i] * dim.step) * residual.strides[i];
    if (i < kMaxSpatialDims - 1) {
      row.is_interior = row.is_interior && index[i] >= phase.interior_begin[i] && index[i] < phase.interior_end[i];
    }
  }
  return row;
}

}  // namespace

void place_rows(const ConvolutionProblem& problem, const PanelItem& item, PanelRow* rows) {
  const PanelPhase& phase = *item.phase;
  const DimPhase& line = phase.dims[2];
  const int64_t height = phase.dims[1].count;
  const int64_t input_step = line.input_step * problem.input_layout.strides[2];
  const int64_t output_step = line.step * problem.output_layout.strides[2];
  const int64_t residual_step = line.step * problem.epilogue.residual_layout.strides[2];
  for (int64_t pixel = item.pixel_begin; pixel < item.pixel_end;) {
    const int64_t y = pixel / line.count;
    const int64_t begin = pixel % line.count;
    const int64_t end = std::min(line.count, begin + item.pixel_end - pixel);
    PanelRow row = line_start(problem, item, y / height, y % height);
    const bool is_interior_line = row.is_interior;
    row.input += begin * input_step;
    row.output += begin * output_step;
    row.residual += begin * residual_step;
    for (int64_t x = begin; x < end; ++x) {
      row.is_edge_column = x < phase.interior_begin[2] || x >= phase.interior_end[2];
      row.is_interior = is_interior_line && !row.is_edge_column;
      *rows++ = row;
      row.input += input_step;
      row.output += output_step;
      row.residual += residual_step;
    }
    pixel += end - begin;
  }
}

SpatialSizes window_position(const PanelItem& item, int64_t index) {
  const auto& dims = item.phase->dims;
  const int64_t pixel = item.pixel_begin + index;
  const int64_t line = pixel / dims[2].count;
  return {line / dims[1].count * dims[0].input_step, line % dims[1].count * dims[1].input_step,
          pixel % dims[2].count * dims[2].input_step};
}

const float* window_element(const ConvolutionProblem& problem, const PanelItem& item, const PanelRow& row,
                            const SpatialSizes& position, const PanelPhase::Segment& segment) {
  const int64_t z = position[0] + segment.offset[0];
  const int64_t y = position[1] + segment.offset[1];
  const int64_t x = position[2] + segment.offset[2];
  if (y < 0 || y >= problem.in[1] || x < 0 || x >= problem.in[2] || z >= problem.in[0]) return nullptr;
  if (z >= 0) return problem.input + row.input + segment.input_offset;
  if (z < -problem.num_previous) return nullptr;
  const ImageLayout& layout = problem.previous_layout;
  return problem.previous + item.image * layout.image_stride + item.group * problem.in_per_group() +
         (problem.num_previous + z) * layout.strides[0] + y * layout.strides[1] + x * layout.strides[2];
}

}  // namespace qx::kernels
