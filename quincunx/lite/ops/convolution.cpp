// Convolutions of one to three spatial dimensions.
#include "quincunx/kernels/convolution/convolution.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/half.h"
#include "quincunx/lite/ops/plain_convolution.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

using kernels::ConvolutionGeometry;

// Where the lists of an operator stand among its arguments; kAbsent: nowhere.
constexpr size_t kAbsent = SIZE_MAX;
struct Places {
  size_t stride, padding, dilation, groups, output_padding;
};
constexpr Places kConv = {3, 4, 5, 6, kAbsent};
constexpr Places kNamedPadding = {3, kAbsent, 5, 6, kAbsent};
constexpr Places kConvolution = {3, 4, 5, 8, 7};
constexpr Places kTransposed = {3, 4, 7, 6, 5};

int num_spatial_dims(const TensorView& weight) { return weight.num_dims() - 2; }

Status check_weight_dims(const TensorView& weight) {
  if (weight.num_dims() >= 3 && weight.num_dims() <= 5) return ok_status();
  return unimplemented("weight: expected one to three spatial dimensions, got " + weight.to_string());
}

Status read_list(const Call& call, size_t place, int64_t fallback, int count, kernels::SpatialSizes& sizes) {
  const std::vector<int64_t> list = call.integers(place, static_cast<size_t>(count), fallback);
  if (list.size() != static_cast<size_t>(count)) {
    return invalid_argument("stride, padding and dilation: expected one number a dimension, got " +
                            std::to_string(list.size()));
  }
  std::copy(list.begin(), list.end(), sizes.begin());
  return ok_status();
}

Result<ConvolutionGeometry> geometry_of(const Call& call, const Places& places, bool transposed) {
  const TensorView& weight = call.tensor(1);
  QX_RETURN_IF_ERROR(check_weight_dims(weight));
  const int count = num_spatial_dims(weight);
  ConvolutionGeometry geometry;
  QX_RETURN_IF_ERROR(read_list(call, places.stride, 1, count, geometry.stride));
  QX_RETURN_IF_ERROR(read_list(call, places.padding, 0, count, geometry.padding_before));
  QX_RETURN_IF_ERROR(read_list(call, places.dilation, 1, count, geometry.dilation));
  geometry.padding_after = geometry.padding_before;
  geometry.groups = call.integer(places.groups, 1);
  geometry.transposed = transposed;
  if (transposed) QX_RETURN_IF_ERROR(read_list(call, places.output_padding, 0, count, geometry.output_padding));
  return geometry;
}

// "valid", or "same": the output is as large as the input; an odd total puts the larger half behind.
Result<ConvolutionGeometry> geometry_of_named_padding(const Call& call) {
  QX_ASSIGN_OR_RETURN(ConvolutionGeometry geometry, geometry_of(call, kNamedPadding, false));
  const std::string_view name = call.text(4, "valid");
  if (name != "valid" && name != "same") {
    return invalid_argument("padding: expected 'valid' or 'same', got '" + std::string(name) + "'");
  }
  for (int i = 0; name == "same" && i < num_spatial_dims(call.tensor(1)); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t total = geometry.dilation[at] * (call.tensor(1).size(i + 2) - 1);
    geometry.padding_before[at] = total / 2;
    geometry.padding_after[at] = total - total / 2;
  }
  return geometry;
}

Result<ConvolutionGeometry> geometry_of_conv(const Call& call) { return geometry_of(call, kConv, false); }
Result<ConvolutionGeometry> geometry_of_convolution(const Call& call) {
  return geometry_of(call, kConvolution, call.flag(6));
}
Result<ConvolutionGeometry> geometry_of_transposed(const Call& call) { return geometry_of(call, kTransposed, true); }

// An image without a batch dimension is a batch of one.
Result<TensorView> batched(const TensorView& x, int rank) {
  if (x.num_dims() == rank) return x;
  if (x.num_dims() != rank - 1)
    return invalid_argument("expected " + std::to_string(rank) + " dimensions, got " + x.to_string());
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  shape.insert(shape.begin(), 1);
  strides.insert(strides.begin(), x.num_elements());
  return TensorView::strided(x.data(), x.dtype(), shape, strides);
}

Status convolve_in_f32(const Call& call, const ConvolutionGeometry& geometry, const TensorView& x,
                       const TensorView& result) {
  QX_ASSIGN_OR_RETURN(const FloatInput input, FloatInput::create(x));
  QX_ASSIGN_OR_RETURN(const FloatOutput output, FloatOutput::create(result));
  kernels::ConvolutionOptions options;
  options.geometry = geometry;
  FloatInput bias;
  if (call.optional_tensor(2) != nullptr) {
    QX_ASSIGN_OR_RETURN(bias, FloatInput::create(*call.optional_tensor(2)));
    options.bias = &bias.view();
  }
  if (call.packed() != nullptr) {
    const Storage& storage = *call.packed()->storage;
    const std::span<const float> floats(reinterpret_cast<const float*>(storage.data()),
                                        static_cast<size_t>(storage.size_bytes()) / sizeof(float));
    QX_ASSIGN_OR_RETURN(const auto weight, kernels::read_packed_convolution_weight(floats));
    QX_RETURN_IF_ERROR(kernels::convolution(input.view(), weight, output.view(), options));
    return output.store();
  }
  QX_ASSIGN_OR_RETURN(const FloatInput weight, FloatInput::create(call.tensor(1)));
  QX_RETURN_IF_ERROR(kernels::convolution(input.view(), weight.view(), output.view(), options));
  return output.store();
}

// What the f32 kernel checks by itself.
Status check_shapes(const Call& call, const ConvolutionGeometry& geometry, const TensorView& x,
                    const TensorView& result) {
  const TensorView& weight = call.tensor(1);
  const int64_t inner = geometry.transposed ? result.size(1) : x.size(1);
  const int64_t outer = geometry.transposed ? x.size(1) : result.size(1);
  const TensorView* bias = call.optional_tensor(2);
  QX_ASSIGN_OR_RETURN(const auto sizes,
                      kernels::convolution_output_sizes(x.shape().subspan(2), weight.shape().subspan(2), geometry));
  bool fits = geometry.groups >= 1 && outer % geometry.groups == 0 && weight.size(0) == outer &&
              weight.size(1) * geometry.groups == inner && result.size(0) == x.size(0) &&
              (bias == nullptr || (bias->num_dims() == 1 && bias->size(0) == result.size(1)));
  for (int i = 2; fits && i < result.num_dims(); ++i) fits = result.size(i) == sizes[static_cast<size_t>(i) - 2];
  if (fits) return ok_status();
  return invalid_argument("the shapes of " + x.to_string() + ", weight " + weight.to_string() + " and result " +
                          result.to_string() + " do not fit");
}

Status convolve(const Call& call, const Result<ConvolutionGeometry>& geometry) {
  QX_RETURN_IF_ERROR(geometry.status());
  const TensorView& weight = call.tensor(1);
  if (!is_floating_point(call.tensor(0).dtype()) || !is_computable(call.tensor(0).dtype())) {
    return unimplemented("input: expected floating point, got " + call.tensor(0).to_string());
  }
  QX_ASSIGN_OR_RETURN(const TensorView x, batched(call.tensor(0), weight.num_dims()));
  QX_ASSIGN_OR_RETURN(const TensorView result, batched(call.result(), weight.num_dims()));
  QX_RETURN_IF_ERROR(check_shapes(call, *geometry, x, result));
  if (result.num_elements() == 0) return ok_status();
  if (kernels::is_kernel_float(x.dtype()) && kernels::is_kernel_float(weight.dtype())) {
    return convolve_in_f32(call, *geometry, x, result);
  }
  return convolve_plainly(x, weight, call.optional_tensor(2), *geometry, result);
}

Status run_conv(const Call& call) { return convolve(call, geometry_of_conv(call)); }
Status run_conv_with_named_padding(const Call& call) { return convolve(call, geometry_of_named_padding(call)); }
Status run_convolution(const Call& call) { return convolve(call, geometry_of_convolution(call)); }
Status run_conv_transpose(const Call& call) { return convolve(call, geometry_of_transposed(call)); }

// `parameters`: groups, transposed, three strides, three dilations, three sizes of the result or zeros.
Result<Packed> pack_weight(const TensorView& weight, std::span<const int64_t> parameters) {
  ConvolutionGeometry geometry;
  kernels::ConvolutionPacking packing;
  geometry.groups = parameters[0];
  geometry.transposed = parameters[1] != 0;
  std::copy_n(parameters.begin() + 2, 3, geometry.stride.begin());
  std::copy_n(parameters.begin() + 5, 3, geometry.dilation.begin());
  std::copy_n(parameters.begin() + 8, 3, packing.typical_output.begin());
  QX_ASSIGN_OR_RETURN(const FloatInput floats, FloatInput::create(weight));
  QX_ASSIGN_OR_RETURN(const int64_t count, kernels::packed_convolution_weight_size(floats.view(), geometry, packing));
  Packed packed;
  QX_ASSIGN_OR_RETURN(packed.storage, Storage::allocate(count * static_cast<int64_t>(sizeof(float))));
  auto* data = reinterpret_cast<float*>(packed.storage->mutable_data());
  const std::span<float> storage(data, static_cast<size_t>(count));
  QX_RETURN_IF_ERROR(kernels::pack_convolution_weight(floats.view(), geometry, storage, packing).status());
  return packed;
}

std::optional<PackRecipe> recipe_of(const Call& call, const Result<ConvolutionGeometry>& geometry) {
  const TensorView& weight = call.tensor(1);
  if (weight.data() == nullptr || !kernels::is_kernel_float(weight.dtype()) || !geometry.ok()) return std::nullopt;
  PackRecipe recipe{weight, {geometry->groups, geometry->transposed ? 1 : 0}, pack_weight};
  recipe.parameters.insert(recipe.parameters.end(), geometry->stride.begin(), geometry->stride.end());
  recipe.parameters.insert(recipe.parameters.end(), geometry->dilation.begin(), geometry->dilation.end());
  recipe.parameters.resize(11, 0);
  return recipe;
}
std::optional<PackRecipe> conv_recipe(const Call& call) { return recipe_of(call, geometry_of_conv(call)); }
std::optional<PackRecipe> named_padding_recipe(const Call& call) {
  return recipe_of(call, geometry_of_named_padding(call));
}
std::optional<PackRecipe> convolution_recipe(const Call& call) {
  return recipe_of(call, geometry_of_convolution(call));
}
std::optional<PackRecipe> transposed_recipe(const Call& call) { return recipe_of(call, geometry_of_transposed(call)); }

Result<std::vector<int64_t>> shape_of(const TensorView& x, const TensorView& weight,
                                      const Result<ConvolutionGeometry>& geometry) {
  QX_RETURN_IF_ERROR(geometry.status());
  const int spatial = num_spatial_dims(weight);
  const int first = x.num_dims() - spatial;
  if (first < 1) return invalid_argument("the shapes do not fit");
  QX_ASSIGN_OR_RETURN(const auto sizes, kernels::convolution_output_sizes(x.shape().subspan(static_cast<size_t>(first)),
                                                                          weight.shape().subspan(2), *geometry));
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  shape[static_cast<size_t>(first) - 1] = geometry->transposed ? weight.size(1) * geometry->groups : weight.size(0);
  std::copy_n(sizes.begin(), spatial, shape.begin() + first);
  return shape;
}
Result<std::vector<int64_t>> conv_shape(const Call& call, size_t) {
  return shape_of(call.tensor(0), call.tensor(1), geometry_of_conv(call));
}
Result<std::vector<int64_t>> convolution_shape(const Call& call, size_t) {
  return shape_of(call.tensor(0), call.tensor(1), geometry_of_convolution(call));
}

constexpr ChannelLayout kLayout = ChannelLayout::kPrefersAdjacent;

#define QX_CONVOLUTION(operator_name) \
  {.name = operator_name,             \
   .signature = "TTtJJJj",            \
   .run = run_conv,                   \
   .recipe = conv_recipe,             \
   .shape = conv_shape,               \
   .layout = kLayout}
constexpr Operator kOperators[] = {
    QX_CONVOLUTION("aten.conv1d.default"),
    QX_CONVOLUTION("aten.conv2d.default"),
    QX_CONVOLUTION("aten.conv3d.default"),
    {.name = "aten.conv1d.padding",
     .signature = "TTtJsJj",
     .run = run_conv_with_named_padding,
     .recipe = named_padding_recipe,
     .layout = kLayout},
    {.name = "aten.conv2d.padding",
     .signature = "TTtJsJj",
     .run = run_conv_with_named_padding,
     .recipe = named_padding_recipe,
     .layout = kLayout},
    {.name = "aten.convolution.default",
     .signature = "TTtJJJbJj",
     .run = run_convolution,
     .recipe = convolution_recipe,
     .shape = convolution_shape,
     .layout = kLayout},
    {.name = "aten.conv_transpose1d.default",
     .signature = "TTtJJJjJ",
     .run = run_conv_transpose,
     .recipe = transposed_recipe,
     .layout = kLayout},
    {.name = "aten.conv_transpose2d.input",
     .signature = "TTtJJJjJ",
     .run = run_conv_transpose,
     .recipe = transposed_recipe,
     .layout = kLayout},
    {.name = "aten.conv_transpose3d.input",
     .signature = "TTtJJJjJ",
     .run = run_conv_transpose,
     .recipe = transposed_recipe,
     .layout = kLayout},
};
#undef QX_CONVOLUTION

}  // namespace

std::span<const Operator> convolution_operators() { return kOperators; }

}  // namespace qx::lite
