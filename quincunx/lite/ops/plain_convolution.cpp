#include "quincunx/lite/ops/plain_convolution.h"

#include <algorithm>
#include <vector>

#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

using kernels::SpatialSizes;

Result<std::vector<double>> doubles_of(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.num_elements()));
  QX_ASSIGN_OR_RETURN(const TensorView dense, TensorView::contiguous(values.data(), DType::kFloat64, view.shape()));
  QX_RETURN_IF_ERROR(convert_elements(view, dense));
  return values;
}

SpatialSizes sizes_of(const TensorView& view) {
  SpatialSizes sizes = {1, 1, 1};
  for (int i = 2; i < view.num_dims(); ++i) sizes[static_cast<size_t>(i) - 2] = view.size(i);
  return sizes;
}

int64_t product(const SpatialSizes& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

SpatialSizes unravel(int64_t index, const SpatialSizes& sizes) {
  return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
}

// One plane of the input, one of the output and the window between them.
struct Planes {
  SpatialSizes in, out, kernel;
  const kernels::ConvolutionGeometry& geometry;

  // out += in * window. A window stands on each pixel of the output, or, transposed, of the input, and meets the other.
  void add(const double* input, const double* window, double* output) const {
    const SpatialSizes& anchors = geometry.transposed ? in : out;
    const SpatialSizes& others = geometry.transposed ? out : in;
    for (int64_t anchor = 0; anchor < product(anchors); ++anchor) {
      for (int64_t tap = 0; tap < product(kernel); ++tap) {
        const int64_t other = met_by(unravel(anchor, anchors), unravel(tap, kernel), others);
        if (other < 0) continue;
        output[geometry.transposed ? other : anchor] += input[geometry.transposed ? anchor : other] * window[tap];
      }
    }
  }

 private:
  // -1 in the padding.
  int64_t met_by(const SpatialSizes& anchor, const SpatialSizes& tap, const SpatialSizes& others) const {
    int64_t index = 0;
    for (size_t i = 0; i < others.size(); ++i) {
      const int64_t at = anchor[i] * geometry.stride[i] - geometry.padding_before[i] + tap[i] * geometry.dilation[i];
      if (at < 0 || at >= others[i]) return -1;
      index = index * others[i] + at;
    }
    return index;
  }
};

}  // namespace

Status convolve_plainly(const TensorView& x, const TensorView& weight, const TensorView* bias,
                        const kernels::ConvolutionGeometry& geometry, const TensorView& result) {
  QX_ASSIGN_OR_RETURN(const std::vector<double> input, doubles_of(x));
  QX_ASSIGN_OR_RETURN(const std::vector<double> windows, doubles_of(weight));
  std::vector<double> offsets(static_cast<size_t>(result.size(1)), 0.0);
  if (bias != nullptr) {
    QX_ASSIGN_OR_RETURN(offsets, doubles_of(*bias));
  }
  const Planes planes{sizes_of(x), sizes_of(result), sizes_of(weight), geometry};
  const int64_t in_group = x.size(1) / geometry.groups;
  const int64_t out_group = result.size(1) / geometry.groups;
  const int64_t in_pixels = product(planes.in), out_pixels = product(planes.out), taps = product(planes.kernel);
  std::vector<double> sums(static_cast<size_t>(result.num_elements()));
  parallel_for(0, result.size(0) * result.size(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t image = plane / result.size(1), channel = plane % result.size(1);
      const int64_t group = channel / out_group;
      double* output = sums.data() + plane * out_pixels;
      std::fill_n(output, out_pixels, offsets[static_cast<size_t>(channel)]);
      for (int64_t c = 0; c < in_group; ++c) {
        const int64_t source = group * in_group + c;
        const int64_t row = geometry.transposed ? source * out_group + channel % out_group : channel * in_group + c;
        planes.add(input.data() + (image * x.size(1) + source) * in_pixels, windows.data() + row * taps, output);
      }
    }
  });
  QX_ASSIGN_OR_RETURN(const TensorView dense, TensorView::contiguous(sums.data(), DType::kFloat64, result.shape()));
  return convert_elements(dense, result);
}

}  // namespace qx::lite
