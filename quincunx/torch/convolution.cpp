// torch.ops.quincunx.pack_convolution_weight, convolution, packed_convolution and causal_convolution
#include "quincunx/kernels/convolution/convolution.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "quincunx/torch/huge_pages.h"
#include "quincunx/torch/result_memory.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;
using Sizes = std::vector<int64_t>;

// One number a dimension, one for all of them, or none: `fallback`.
void read_sizes(const char* name, std::span<const int64_t> values, size_t count, int64_t fallback,
                kernels::SpatialSizes& sizes) {
  if (values.size() > 1 && values.size() != count) {
    throw_if_error(invalid_argument(std::string(name) + ": expected one number or " + std::to_string(count) + ", got " +
                                    std::to_string(values.size())));
  }
  for (size_t i = 0; i < count; ++i) {
    sizes[i] = values.empty() ? fallback : values.size() == 1 ? values[0] : values[i];
  }
}

// As read_sizes, or twice as many: those before, then those after.
void read_padding(const Sizes& values, size_t count, kernels::ConvolutionGeometry& geometry) {
  const std::span<const int64_t> all(values);
  const bool is_split = all.size() == 2 * count;
  read_sizes("padding", is_split ? all.first(count) : all, count, 0, geometry.padding_before);
  geometry.padding_after = geometry.padding_before;
  if (is_split) read_sizes("padding", all.last(count), count, 0, geometry.padding_after);
}

size_t num_spatial_dims(const char* name, size_t num_dims) {
  if (num_dims < 3 || num_dims > 5) {
    throw_if_error(invalid_argument(std::string(name) + ": expected one to three spatial dimensions behind two, got " +
                                    std::to_string(num_dims) + " dimensions"));
  }
  return num_dims - 2;
}

// What packing needs beside the weight itself.
struct Packing {
  kernels::ConvolutionGeometry geometry;
  kernels::ConvolutionPacking options;
};

Packing read_packing(size_t num_dims, const Sizes& stride, const Sizes& dilation, int64_t groups, bool transposed,
                     bool exact, const Sizes& typical_output) {
  const size_t count = num_spatial_dims("weight", num_dims);
  Packing packing;
  packing.geometry.groups = groups;
  packing.geometry.transposed = transposed;
  read_sizes("stride", stride, count, 1, packing.geometry.stride);
  read_sizes("dilation", dilation, count, 1, packing.geometry.dilation);
  packing.options.exact = exact;
  read_sizes("typical_output", typical_output, count, 0, packing.options.typical_output);
  return packing;
}

// Elements that pack_convolution_weight gives for a weight of this shape.
int64_t packed_convolution_weight_size(const Sizes& weight_shape, const Sizes& stride, const Sizes& dilation,
                                       int64_t groups, bool transposed, bool exact, const Sizes& typical_output) {
  const Packing packing =
      read_packing(weight_shape.size(), stride, dilation, groups, transposed, exact, typical_output);
  static float unread = 0;
  const TensorView view = value_or_throw(TensorView::contiguous(&unread, DType::kFloat32, weight_shape));
  return value_or_throw(kernels::packed_convolution_weight_size(view, packing.geometry, packing.options));
}

Tensor pack_convolution_weight(const Tensor& weight, const Sizes& stride, const Sizes& dilation, int64_t groups,
                               bool transposed, bool exact, const Sizes& typical_output) {
  const TensorView view = float32_view("weight", weight);
  const Packing packing =
      read_packing(static_cast<size_t>(view.num_dims()), stride, dilation, groups, transposed, exact, typical_output);
  const int64_t size = value_or_throw(kernels::packed_convolution_weight_size(view, packing.geometry, packing.options));
  Tensor packed = with_huge_pages(torch::stable::new_empty(weight, {&size, 1}));
  const std::span<float> storage(static_cast<float*>(packed.mutable_data_ptr()), static_cast<size_t>(size));
  value_or_throw(kernels::pack_convolution_weight(view, packing.geometry, storage, packing.options));
  return packed;
}

bool is_channels_last(const Tensor& x) { return x.size(1) > 1 && x.stride(1) == 1 && !x.is_contiguous(); }

// In the memory order of x.
Tensor new_image(const Tensor& x, const Sizes& shape) {
  if (!is_channels_last(x)) return contiguous_result(x, shape);
  Sizes strides(shape.size(), 1);
  int64_t stride = shape[1];
  for (size_t i = shape.size(); i-- > 2; stride *= std::max<int64_t>(1, shape[i])) strides[i] = stride;
  strides[0] = stride;
  return strided_result(x, shape, strides);
}

// A weight as it is or, if weight_shape is not empty, what pack_convolution_weight made of one of that shape.
struct Weight {
  TensorView view;
  std::optional<kernels::PackedConvolutionWeight> packed;
  Sizes shape;
};

Weight read_weight(const Tensor& weight, const Sizes& weight_shape, const kernels::ConvolutionGeometry& geometry) {
  Weight result{float32_view("weight", weight), std::nullopt, weight_shape};
  if (weight_shape.empty()) {
    result.shape.assign(result.view.shape().begin(), result.view.shape().end());
    return result;
  }
  if (result.view.num_dims() != 1 || !result.view.is_contiguous()) {
    throw_if_error(
        invalid_argument("weight: expected what pack_convolution_weight gives, got " + result.view.to_string()));
  }
  const std::span<const float> storage(result.view.data_as<const float>(), static_cast<size_t>(result.view.size(0)));
  const auto packed = value_or_throw(kernels::read_packed_convolution_weight(storage));
  const int64_t first = packed.transposed ? packed.in_channels : packed.out_channels;
  const int64_t second = (packed.transposed ? packed.out_channels : packed.in_channels) / packed.groups;
  bool fits = weight_shape.size() == static_cast<size_t>(packed.num_spatial_dims) + 2 && weight_shape[0] == first &&
              weight_shape[1] == second;
  for (int i = 0; fits && i < packed.num_spatial_dims; ++i) fits = weight_shape[i + 2] == packed.kernel[i];
  if (!fits || packed.groups != geometry.groups || packed.transposed != geometry.transposed) {
    throw_if_error(invalid_argument("weight_shape, groups and transposed: expected those that weight was packed with"));
  }
  result.packed = packed;
  return result;
}

// The strides of new_image's result are products of these sizes.
void check_size_in_bytes(const Sizes& shape) {
  int64_t bytes = sizeof(float);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, size), &bytes)) {
      std::string text;
      for (const int64_t each : shape) text += (text.empty() ? "" : ", ") + std::to_string(each);
      throw_if_error(invalid_argument("output: the size in bytes of [" + text + "] overflows 64 bits"));
    }
  }
}

Tensor new_output(const Tensor& x, const Weight& weight, const kernels::ConvolutionGeometry& geometry) {
  if (x.dim() != static_cast<int64_t>(weight.shape.size())) {
    throw_if_error(invalid_argument("x: expected " + std::to_string(weight.shape.size()) + " dimensions, got " +
                                    std::to_string(x.dim())));
  }
  const size_t count = num_spatial_dims("weight", weight.shape.size());
  const auto sizes = x.sizes();
  const std::span<const int64_t> input(sizes.data() + 2, count);
  const auto output =
      value_or_throw(kernels::convolution_output_sizes(input, std::span(weight.shape).subspan(2), geometry));
  Sizes shape{x.size(0), geometry.transposed ? weight.shape[1] * geometry.groups : weight.shape[0]};
  shape.insert(shape.end(), output.begin(), output.begin() + static_cast<std::ptrdiff_t>(count));
  check_size_in_bytes(shape);
  return new_image(x, shape);
}

void run(const Tensor& x, const Weight& weight, const Tensor& output, const kernels::ConvolutionOptions& options) {
  const TensorView input = float32_view("x", x);
  const TensorView result = float32_view("output", output);
  throw_if_error(weight.packed.has_value() ? kernels::convolution(input, *weight.packed, result, options)
                                           : kernels::convolution(input, weight.view, result, options));
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, const Sizes& stride,
                   const Sizes& padding, const Sizes& dilation, bool transposed, const Sizes& output_padding,
                   int64_t groups, const Sizes& weight_shape, const std::string& activation,
                   const std::vector<double>& clamp, const std::optional<Tensor>& scale,
                   const std::optional<Tensor>& residual, bool residual_first) {
  kernels::ConvolutionOptions options;
  kernels::ConvolutionGeometry& geometry = options.geometry;
  const size_t num_dims = weight_shape.empty() ? static_cast<size_t>(weight.dim()) : weight_shape.size();
  const size_t count = num_spatial_dims("weight", num_dims);
  geometry.groups = groups;
  geometry.transposed = transposed;
  read_sizes("stride", stride, count, 1, geometry.stride);
  read_sizes("dilation", dilation, count, 1, geometry.dilation);
  read_sizes("output_padding", output_padding, count, 0, geometry.output_padding);
  read_padding(padding, count, geometry);
  options.activation = value_or_throw(kernels::convolution_activation_from_name(activation));
  if (options.activation == kernels::ConvolutionActivation::kClamp) {
    if (clamp.size() != 2) {
      throw_if_error(invalid_argument("clamp: expected the least and the largest value, got " +
                                      std::to_string(clamp.size()) + " numbers"));
    }
    options.clamp_low = static_cast<float>(clamp[0]);
    options.clamp_high = static_cast<float>(clamp[1]);
  }
  options.residual_before_activation = residual_first;
  TensorView bias_view, scale_view, residual_view;
  if (bias.has_value()) options.bias = &(bias_view = float32_view("bias", *bias));
  if (scale.has_value()) options.scale = &(scale_view = float32_view("scale", *scale));
  if (residual.has_value()) options.residual = &(residual_view = float32_view("residual", *residual));
  const Weight weights = read_weight(weight, weight_shape, geometry);
  Tensor output = new_output(x, weights, geometry);
  run(x, weights, output, options);
  return output;
}

// Fewer arguments than convolution has, because PyTorch converts each of them at every call: for layers that take a few
// microseconds. `geometry`: the weight's shape; stride, padding and dilation, one number a dimension each; groups.
Tensor packed_convolution(const Tensor& x, const Tensor& packed, const std::optional<Tensor>& bias,
                          const Sizes& geometry) {
  const size_t count = geometry.size() / 4;
  if (geometry.size() % 4 != 3 || count < 1 || count > kernels::kMaxSpatialDims) {
    throw_if_error(
        invalid_argument("geometry: expected the shape of the weight, strides, paddings, dilations and groups, 7, 11 "
                         "or 15 numbers, got " +
                         std::to_string(geometry.size())));
  }
  const Sizes shape(geometry.begin(), geometry.begin() + static_cast<std::ptrdiff_t>(count) + 2);
  kernels::ConvolutionOptions options;
  const int64_t* numbers = geometry.data() + count + 2;
  std::copy_n(numbers, count, options.geometry.stride.begin());
  std::copy_n(numbers + count, count, options.geometry.padding_before.begin());
  std::copy_n(numbers + 2 * count, count, options.geometry.dilation.begin());
  options.geometry.padding_after = options.geometry.padding_before;
  options.geometry.groups = geometry.back();
  TensorView bias_view;
  if (bias.has_value()) options.bias = &(bias_view = float32_view("bias", *bias));
  const Weight weights = read_weight(packed, shape, options.geometry);
  Tensor output = new_output(x, weights, options.geometry);
  run(x, weights, output, options);
  return output;
}

// Frames before x: `previous`, in front of them zeros. Also returns the frames that the next chunk needs.
std::tuple<Tensor, Tensor> causal_convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                                              const std::optional<Tensor>& previous, const Sizes& stride,
                                              const Sizes& padding, const Sizes& dilation, const Sizes& weight_shape) {
  kernels::ConvolutionOptions options;
  kernels::ConvolutionGeometry& geometry = options.geometry;
  read_sizes("stride", stride, 3, 1, geometry.stride);
  read_sizes("dilation", dilation, 3, 1, geometry.dilation);
  kernels::SpatialSizes plane{};
  read_sizes("padding", padding, 2, 0, plane);
  const Weight weights = read_weight(weight, weight_shape, geometry);
  if (weights.shape.size() != 5 || x.dim() != 5) {
    throw_if_error(invalid_argument("x and weight: expected three spatial dimensions behind two"));
  }
  const int64_t num_frames = geometry.dilation[0] * (weights.shape[2] - 1);
  geometry.padding_before = {num_frames, plane[0], plane[1]};
  geometry.padding_after = {0, plane[0], plane[1]};
  TensorView bias_view, previous_view;
  if (bias.has_value()) options.bias = &(bias_view = float32_view("bias", *bias));
  if (previous.has_value()) options.previous_frames = &(previous_view = float32_view("previous", *previous));
  Tensor output = new_output(x, weights, geometry);
  run(x, weights, output, options);
  Tensor next = new_image(x, {x.size(0), x.size(1), num_frames, x.size(3), x.size(4)});
  throw_if_error(kernels::next_frames(options.previous_frames, float32_view("x", x), float32_view("next", next)));
  return {output, next};
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "pack_convolution_weight(Tensor weight, int[] stride=[], int[] dilation=[], int groups=1, bool transposed=False, "
      "bool exact=False, int[] typical_output=[]) -> Tensor");
  library.def(
      "packed_convolution_weight_size(int[] weight_shape, int[] stride=[], int[] dilation=[], int groups=1, "
      "bool transposed=False, bool exact=False, int[] typical_output=[]) -> int");
  library.def(
      "convolution(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[], int[] padding=[], int[] dilation=[], "
      "bool transposed=False, int[] output_padding=[], int groups=1, int[] weight_shape=[], str activation=\"none\", "
      "float[] clamp=[], Tensor? scale=None, Tensor? residual=None, bool residual_first=False) -> Tensor");
  library.def("packed_convolution(Tensor x, Tensor packed, Tensor? bias, int[] geometry) -> Tensor");
  library.def(
      "causal_convolution(Tensor x, Tensor weight, Tensor? bias=None, Tensor? previous=None, int[] stride=[], "
      "int[] padding=[], int[] dilation=[], int[] weight_shape=[]) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("pack_convolution_weight", TORCH_BOX(&qx::torch_bridge::pack_convolution_weight));
  library.impl("convolution", TORCH_BOX(&qx::torch_bridge::convolution));
  library.impl("packed_convolution", TORCH_BOX(&qx::torch_bridge::packed_convolution));
  library.impl("causal_convolution", TORCH_BOX(&qx::torch_bridge::causal_convolution));
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CompositeExplicitAutograd, library) {
  library.impl("packed_convolution_weight_size", TORCH_BOX(&qx::torch_bridge::packed_convolution_weight_size));
}
