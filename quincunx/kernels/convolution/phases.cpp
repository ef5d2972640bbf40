#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {
namespace {

DimPhase transposed_phase(const ConvolutionProblem& problem, size_t dim, int64_t remainder) {
  const int64_t stride = problem.stride[dim];
  DimPhase phase;
  phase.first = remainder;
  phase.step = stride;
  phase.count = (problem.out[dim] - remainder + stride - 1) / stride;
  for (int64_t t = 0; t < problem.kernel[dim]; ++t) {
    const int64_t distance = remainder + problem.padding[dim] - t * problem.dilation[dim];
    // Division that rounds down would do; only multiples of the stride are kept.
    if (distance % stride == 0) phase.taps.push_back({t, distance / stride});
  }
  return phase;
}

}  // namespace

std::vector<DimPhase> dim_phases(const ConvolutionProblem& problem, int dim) {
  const auto d = static_cast<size_t>(dim);
  if (problem.transposed) {
    std::vector<DimPhase> phases;
    for (int64_t r = 0; r < problem.stride[d] && r < problem.out[d]; ++r) {
      phases.push_back(transposed_phase(problem, d, r));
    }
    return phases;
  }
  DimPhase phase;
  phase.count = problem.out[d];
  phase.input_step = problem.stride[d];
  for (int64_t t = 0; t < problem.kernel[d]; ++t) {
    phase.taps.push_back({t, t * problem.dilation[d] - problem.padding[d]});
  }
  return {phase};
}

const float* input_line(const ConvolutionProblem& problem, int64_t image, int64_t z, int64_t y) {
  if (y < 0 || y >= problem.in[1] || z >= problem.in[0] || z < -problem.num_previous) return nullptr;
  const bool is_previous = z < 0;
  const ImageLayout& layout = is_previous ? problem.previous_layout : problem.input_layout;
  return (is_previous ? problem.previous : problem.input) + image * layout.image_stride +
         (is_previous ? z + problem.num_previous : z) * layout.strides[0] + y * layout.strides[1];
}

bool has_adjacent_channels(const ImageLayout& layout, int64_t channels) {
  return layout.channel_stride == 1 || channels == 1;
}

}  // namespace qx::kernels
