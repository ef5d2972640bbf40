// Convolutions of one to three spatial dimensions, as a matrix product of the windows' elements with the packed weight.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/product.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

constexpr size_t kMaxSpatial = 3;
using Sizes = std::array<int64_t, kMaxSpatial>;
// Floats of window elements that are gathered at a time: 4 MiB, a share of a last-level cache.
constexpr int64_t kGatheredElements = int64_t{1} << 20;

struct Geometry {
  int64_t images = 0, in_channels = 0, out_channels = 0, groups = 1;
  Sizes in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1};
  Sizes stride = {1, 1, 1}, padding = {0, 0, 0}, dilation = {1, 1, 1};

  int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
  int64_t kernel_elements() const { return kernel[0] * kernel[1] * kernel[2]; }
};

struct Arguments {
  const TensorView* x;
  const TensorView* weight;
  const TensorView* bias;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
};

std::string misfit(const Arguments& arguments, const TensorView& result) {
  return "the shapes of " + arguments.x->to_string() + ", weight " + arguments.weight->to_string() + " and result " +
         result.to_string() + " do not fit";
}

// An image without a batch dimension is a batch of one.
Result<TensorView> batched(const TensorView& x, int rank) {
  if (x.num_dims() == rank) return x;
  if (x.num_dims() != rank - 1)
    return invalid_argument("expected " + std::to_string(rank) + " dimensions, got " + x.to_string());
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  shape.insert(shape.begin(), 1);
  strides.insert(strides.begin(), 0);
  return TensorView::strided(x.data(), x.dtype(), shape, strides);
}

Result<Geometry> geometry_of(const Arguments& arguments, const TensorView& x, const TensorView& result) {
  const TensorView& weight = *arguments.weight;
  const auto spatial = static_cast<size_t>(weight.num_dims()) - 2;
  Geometry g;
  g.images = x.size(0);
  g.in_channels = x.size(1);
  g.out_channels = result.size(1);
  g.groups = arguments.groups;
  for (size_t i = 0; i < spatial; ++i) {
    const size_t dim = kMaxSpatial - spatial + i;
    const auto index = static_cast<int>(i) + 2;
    g.in[dim] = x.size(index);
    g.out[dim] = result.size(index);
    g.kernel[dim] = weight.size(index);
    g.stride[dim] = arguments.stride[i];
    g.padding[dim] = arguments.padding[i];
    g.dilation[dim] = arguments.dilation[i];
    if (g.stride[dim] < 1 || g.dilation[dim] < 1 || g.padding[dim] < 0) {
      return invalid_argument("stride, padding and dilation: expected at least 1, 0 and 1");
    }
    const int64_t span = g.in[dim] + 2 * g.padding[dim] - g.dilation[dim] * (g.kernel[dim] - 1) - 1;
    if (!arguments.transposed && (span < 0 || g.out[dim] != span / g.stride[dim] + 1)) {
      return invalid_argument(misfit(arguments, result));
    }
  }
  const int64_t inner = arguments.transposed ? g.out_channels : g.in_channels;
  const int64_t outer = arguments.transposed ? g.in_channels : g.out_channels;
  if (g.groups < 1 || g.in_channels % g.groups != 0 || g.out_channels % g.groups != 0 || weight.size(0) != outer ||
      weight.size(1) != inner / g.groups || result.size(0) != g.images || !result.is_contiguous()) {
    return invalid_argument(misfit(arguments, result));
  }
  return g;
}

// One row a window: the elements under it, channel by channel, zeros where it hangs over the edge.
template <typename C>
class Windows {
 public:
  Windows(const Geometry& geometry, const TensorView& x, int64_t image, int64_t first_channel)
      : g_(geometry), x_(x), image_(image), first_channel_(first_channel) {
    for (size_t i = 0; i < kMaxSpatial; ++i) {
      const int dim = x.num_dims() - static_cast<int>(kMaxSpatial - i);
      steps_[i] = dim >= 2 ? x.stride(dim) : 0;
    }
  }

  void gather(int64_t first, int64_t count, C* rows) const {
    const int64_t channels = g_.in_channels / g_.groups;
    const int64_t length = channels * g_.kernel_elements();
    parallel_for(0, count, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, length)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) gather_row(first + i, channels, rows + i * length);
    });
  }

 private:
  void gather_row(int64_t pixel, int64_t channels, C* row) const {
    const Sizes at = {pixel / (g_.out[1] * g_.out[2]), pixel / g_.out[2] % g_.out[1], pixel % g_.out[2]};
    for (int64_t channel = 0; channel < channels; ++channel) {
      const int64_t base = image_ * x_.stride(0) + (first_channel_ + channel) * x_.stride(1);
      for (int64_t deep = 0; deep < g_.kernel[0]; ++deep) {
        const int64_t z = at[0] * g_.stride[0] - g_.padding[0] + deep * g_.dilation[0];
        for (int64_t high = 0; high < g_.kernel[1]; ++high) {
          const int64_t y = at[1] * g_.stride[1] - g_.padding[1] + high * g_.dilation[1];
          const bool inside = z >= 0 && z < g_.in[0] && y >= 0 && y < g_.in[1];
          row = inside ? gather_line(base + z * steps_[0] + y * steps_[1], at[2], row)
                       : std::fill_n(row, g_.kernel[2], C{0});
        }
      }
    }
  }

  C* gather_line(int64_t offset, int64_t column, C* row) const {
    const int64_t bytes = dtype_size_bytes(x_.dtype());
    for (int64_t wide = 0; wide < g_.kernel[2]; ++wide) {
      const int64_t at = column * g_.stride[2] - g_.padding[2] + wide * g_.dilation[2];
      if (at < 0 || at >= g_.in[2]) {
        *row++ = C{0};
        continue;
      }
      const char* data = x_.data_as<char>() + (offset + at * steps_[2]) * bytes;
      *row = x_.dtype() == DType::kFloat32 ? static_cast<C>(*reinterpret_cast<const float*>(data))
                                           : *load_row(x_.dtype(), data, 1, 1, row);
      ++row;
    }
    return row;
  }

  const Geometry& g_;
  const TensorView& x_;
  int64_t image_;
  int64_t first_channel_;
  Sizes steps_ = {};
};

// The weight [O, I / groups, ...] of one group as [I / groups * kernel, O / groups].
Result<TensorView> weight_matrix(const TensorView& weight, const Geometry& g, int64_t group) {
  const int64_t inner = g.in_channels / g.groups * g.kernel_elements();
  const int64_t columns = g.out_channels / g.groups;
  char* data = weight.data_as<char>() + group * columns * inner * dtype_size_bytes(weight.dtype());
  const int64_t shape[] = {inner, columns};
  const int64_t strides[] = {1, inner};
  return TensorView::strided(data, weight.dtype(), shape, strides);
}

template <typename C>
Status convolve_as(const Call& call, const Arguments& arguments, const Geometry& g, const TensorView& x,
                   const TensorView& result) {
  constexpr DType kType = std::is_same_v<C, float> ? DType::kFloat32 : DType::kFloat64;
  const int64_t inner = g.in_channels / g.groups * g.kernel_elements();
  const int64_t columns = g.out_channels / g.groups;
  const int64_t block = std::clamp<int64_t>(kGatheredElements / std::max<int64_t>(1, inner), 1, g.out_pixels());
  std::vector<C> rows(static_cast<size_t>(block * inner));
  const int64_t bytes = dtype_size_bytes(result.dtype());
  for (int64_t task = 0; task < g.images * g.groups; ++task) {
    const int64_t image = task / g.groups, group = task % g.groups;
    const Windows<C> windows(g, x, image, group * (g.in_channels / g.groups));
    QX_ASSIGN_OR_RETURN(const TensorView matrix, weight_matrix(*arguments.weight, g, group));
    ProductOptions options;
    options.packed = g.groups == 1 ? call.packed() : nullptr;
    TensorView bias;
    if (arguments.bias != nullptr) {
      QX_ASSIGN_OR_RETURN(bias, arguments.bias->slice(0, group * columns, (group + 1) * columns));
      options.bias = &bias;
    }
    for (int64_t first = 0; first < g.out_pixels(); first += block) {
      const int64_t count = std::min(block, g.out_pixels() - first);
      windows.gather(first, count, rows.data());
      const int64_t shape[] = {count, inner};
      QX_ASSIGN_OR_RETURN(const TensorView a, TensorView::contiguous(rows.data(), kType, shape));
      const int64_t offset = (image * g.out_channels + group * columns) * g.out_pixels() + first;
      const int64_t out_shape[] = {count, columns};
      const int64_t out_strides[] = {1, g.out_pixels()};
      QX_ASSIGN_OR_RETURN(const TensorView out, TensorView::strided(result.data_as<char>() + offset * bytes,
                                                                    result.dtype(), out_shape, out_strides));
      QX_RETURN_IF_ERROR(multiply(a, matrix, options, out));
    }
  }
  return ok_status();
}

// Each input pixel adds its product with the weight to the output pixels under the window.
Status convolve_transposed(const Arguments& arguments, const Geometry& g, const TensorView& x,
                           const TensorView& result) {
  const int64_t of_group = g.out_channels / g.groups;
  const int64_t in_group = g.in_channels / g.groups;
  const int64_t bytes = dtype_size_bytes(x.dtype());
  std::vector<double> sums(static_cast<size_t>(g.out_channels * g.out_pixels()));
  std::vector<double> weight(static_cast<size_t>(arguments.weight->num_elements()));
  QX_ASSIGN_OR_RETURN(const TensorView weights,
                      TensorView::contiguous(weight.data(), DType::kFloat64, arguments.weight->shape()));
  QX_RETURN_IF_ERROR(convert_elements(*arguments.weight, weights));
  std::vector<double> bias(static_cast<size_t>(g.out_channels), 0);
  if (arguments.bias != nullptr) {
    QX_ASSIGN_OR_RETURN(const TensorView list,
                        TensorView::contiguous(bias.data(), DType::kFloat64, arguments.bias->shape()));
    QX_RETURN_IF_ERROR(convert_elements(*arguments.bias, list));
  }
  std::vector<double> pixels(static_cast<size_t>(x.num_elements()));
  QX_ASSIGN_OR_RETURN(const TensorView dense, TensorView::contiguous(pixels.data(), DType::kFloat64, x.shape()));
  QX_RETURN_IF_ERROR(convert_elements(x, dense));
  for (int64_t image = 0; image < g.images; ++image) {
    parallel_for(0, g.out_channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t channel = begin; channel < end; ++channel) {
        double* plane = sums.data() + channel * g.out_pixels();
        std::fill_n(plane, g.out_pixels(), bias[static_cast<size_t>(channel)]);
        const int64_t group = channel / of_group;
        for (int64_t c = 0; c < in_group; ++c) {
          const int64_t source = group * in_group + c;
          const double* kernel = weight.data() + (source * of_group + channel % of_group) * g.kernel_elements();
          const double* from = pixels.data() + (image * g.in_channels + source) * g.in_pixels();
          for (int64_t pixel = 0; pixel < g.in_pixels(); ++pixel) {
            const Sizes at = {pixel / (g.in[1] * g.in[2]), pixel / g.in[2] % g.in[1], pixel % g.in[2]};
            for (int64_t tap = 0; tap < g.kernel_elements(); ++tap) {
              const Sizes k = {tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]};
              int64_t to = 0;
              bool inside = true;
              for (size_t i = 0; i < kMaxSpatial; ++i) {
                const int64_t index = at[i] * g.stride[i] - g.padding[i] + k[i] * g.dilation[i];
                inside = inside && index >= 0 && index < g.out[i];
                to = to * g.out[i] + index;
              }
              if (inside) plane[to] += from[pixel] * kernel[tap];
            }
          }
        }
      }
    });
    const int64_t shape[] = {static_cast<int64_t>(sums.size())};
    QX_ASSIGN_OR_RETURN(const TensorView from, TensorView::contiguous(sums.data(), DType::kFloat64, shape));
    char* data = result.data_as<char>() + image * shape[0] * bytes;
    QX_ASSIGN_OR_RETURN(const TensorView to, TensorView::contiguous(data, result.dtype(), shape));
    QX_RETURN_IF_ERROR(convert_elements(from, to));
  }
  return ok_status();
}

Status convolve(const Call& call, const Arguments& arguments) {
  const TensorView& weight = *arguments.weight;
  const auto rank = weight.num_dims();
  if (rank < 3 || rank > 5 || !weight.is_contiguous()) {
    return unimplemented("weight: expected one to three spatial dimensions, contiguous, got " + weight.to_string());
  }
  if (!is_floating_point(arguments.x->dtype()) || !is_computable(arguments.x->dtype())) {
    return unimplemented("input: expected floating point, got " + arguments.x->to_string());
  }
  QX_ASSIGN_OR_RETURN(const TensorView x, batched(*arguments.x, rank));
  QX_ASSIGN_OR_RETURN(const TensorView result, batched(call.result(), rank));
  QX_ASSIGN_OR_RETURN(const Geometry g, geometry_of(arguments, x, result));
  if (arguments.bias != nullptr && (arguments.bias->num_dims() != 1 || arguments.bias->size(0) != g.out_channels)) {
    return invalid_argument("bias: expected [" + std::to_string(g.out_channels) + "], got " +
                            arguments.bias->to_string());
  }
  if (result.num_elements() == 0) return ok_status();
  if (arguments.transposed) return convolve_transposed(arguments, g, x, result);
  if (kernels::is_kernel_float(x.dtype())) return convolve_as<float>(call, arguments, g, x, result);
  return convolve_as<double>(call, arguments, g, x, result);
}

// Of the lists at `first` ...: stride, padding and dilation.
Arguments arguments_of(const Call& call, size_t stride, size_t padding, size_t dilation, size_t groups) {
  Arguments arguments = {&call.tensor(0), &call.tensor(1), call.optional_tensor(2), {}, {}, {}, 1, false};
  const auto spatial = static_cast<size_t>(std::max(call.tensor(1).num_dims() - 2, 0));
  arguments.stride = call.integers(stride, spatial, 1);
  arguments.padding = call.integers(padding, spatial, 0);
  arguments.dilation = call.integers(dilation, spatial, 1);
  arguments.groups = call.integer(groups, 1);
  return arguments;
}

bool lists_fit(const Arguments& arguments) {
  const auto spatial = static_cast<size_t>(std::max(arguments.weight->num_dims() - 2, 0));
  return arguments.stride.size() == spatial && arguments.padding.size() == spatial &&
         arguments.dilation.size() == spatial;
}

Status checked(const Call& call, const Arguments& arguments) {
  if (!lists_fit(arguments)) return invalid_argument("stride, padding and dilation: expected one number a dimension");
  return convolve(call, arguments);
}

// conv(x, weight, bias, stride, padding, dilation, groups)
Status run_conv(const Call& call) { return checked(call, arguments_of(call, 3, 4, 5, 6)); }

// "valid", or "same": the output is as large as the input. An odd total puts the larger half behind, which needs
// padding that differs by side.
Status run_conv_with_named_padding(const Call& call) {
  Arguments arguments = arguments_of(call, 3, SIZE_MAX, 5, 6);
  const std::string_view name = call.text(4, "valid");
  if (name != "valid" && name != "same") {
    return invalid_argument("padding: expected 'valid' or 'same', got '" + std::string(name) + "'");
  }
  for (size_t i = 0; name == "same" && i < arguments.padding.size(); ++i) {
    const int64_t total = arguments.dilation[i] * (arguments.weight->size(static_cast<int>(i) + 2) - 1);
    if (total % 2 != 0) return unimplemented("padding: 'same' with an even kernel");
    arguments.padding[i] = total / 2;
  }
  return checked(call, arguments);
}

// convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
Status run_convolution(const Call& call) {
  Arguments arguments = arguments_of(call, 3, 4, 5, 8);
  arguments.transposed = call.flag(6);
  return checked(call, arguments);
}

// conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation)
Status run_conv_transpose(const Call& call) {
  Arguments arguments = arguments_of(call, 3, 4, 7, 6);
  arguments.transposed = true;
  return checked(call, arguments);
}

// The whole weight, where it is one matrix.
std::optional<TensorView> packable(const Call& call, int64_t groups, bool transposed) {
  const TensorView& weight = call.tensor(1);
  if (groups != 1 || transposed || weight.num_dims() < 3 || weight.data() == nullptr || !weight.is_contiguous() ||
      !kernels::is_kernel_float(weight.dtype())) {
    return std::nullopt;
  }
  const int64_t columns = weight.size(0);
  const int64_t inner = columns == 0 ? 0 : weight.num_elements() / columns;
  const int64_t shape[] = {inner, columns};
  const int64_t strides[] = {1, inner};
  return TensorView::strided(weight.data(), weight.dtype(), shape, strides).value();
}
std::optional<TensorView> conv_matrix(const Call& call) { return packable(call, call.integer(6, 1), false); }
std::optional<TensorView> convolution_matrix(const Call& call) {
  return packable(call, call.integer(8, 1), call.flag(6));
}

Result<std::vector<int64_t>> shape_of(const TensorView& x, const Arguments& arguments) {
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  const int spatial = arguments.weight->num_dims() - 2;
  const int first = x.num_dims() - spatial;
  if (first < 1 || !lists_fit(arguments) || arguments.transposed) return invalid_argument("the shapes do not fit");
  shape[static_cast<size_t>(first) - 1] = arguments.weight->size(0);
  for (int i = 0; i < spatial; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t span = x.size(first + i) + 2 * arguments.padding[at] -
                         arguments.dilation[at] * (arguments.weight->size(i + 2) - 1) - 1;
    if (span < 0 || arguments.stride[at] < 1) return invalid_argument("input: " + x.to_string() + " is too small");
    shape[static_cast<size_t>(first + i)] = span / arguments.stride[at] + 1;
  }
  return shape;
}
Result<std::vector<int64_t>> conv_shape(const Call& call, size_t) {
  return shape_of(call.tensor(0), arguments_of(call, 3, 4, 5, 6));
}
Result<std::vector<int64_t>> convolution_shape(const Call& call, size_t) {
  Arguments arguments = arguments_of(call, 3, 4, 5, 8);
  arguments.transposed = call.flag(6);
  return shape_of(call.tensor(0), arguments);
}

#define QX_CONVOLUTION(operator_name) \
  {.name = operator_name, .signature = "TTtJJJj", .run = run_conv, .matrix = conv_matrix, .shape = conv_shape}
constexpr Operator kOperators[] = {
    QX_CONVOLUTION("aten.conv1d.default"),
    QX_CONVOLUTION("aten.conv2d.default"),
    QX_CONVOLUTION("aten.conv3d.default"),
    {.name = "aten.conv1d.padding", .signature = "TTtJsJj", .run = run_conv_with_named_padding, .matrix = conv_matrix},
    {.name = "aten.conv2d.padding", .signature = "TTtJsJj", .run = run_conv_with_named_padding, .matrix = conv_matrix},
    {.name = "aten.convolution.default",
     .signature = "TTtJJJbJj",
     .run = run_convolution,
     .matrix = convolution_matrix,
     .shape = convolution_shape},
    {.name = "aten.conv_transpose1d.default", .signature = "TTtJJJjJ", .run = run_conv_transpose},
    {.name = "aten.conv_transpose2d.input", .signature = "TTtJJJjJ", .run = run_conv_transpose},
    {.name = "aten.conv_transpose3d.input", .signature = "TTtJJJjJ", .run = run_conv_transpose},
};
#undef QX_CONVOLUTION

}  // namespace

std::span<const Operator> convolution_operators() { return kOperators; }

}  // namespace qx::lite
