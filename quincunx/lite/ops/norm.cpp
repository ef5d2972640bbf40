// Normalisations: over the last dimensions, over groups of channels, and with stored statistics.
#include "quincunx/kernels/norm/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// [..., a, b] with both normalised becomes [..., a * b].
Result<TensorView> with_flat_tail(const TensorView& x, size_t num_normalized) {
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  if (num_normalized == 0 || num_normalized > shape.size()) {
    return invalid_argument("normalized_shape: expected 1 to " + std::to_string(shape.size()) + " sizes, got " +
                            std::to_string(num_normalized));
  }
  if (num_normalized == 1) return x;
  int64_t length = 1;
  for (size_t i = shape.size() - num_normalized; i < shape.size(); ++i) length *= shape[i];
  shape.resize(shape.size() - num_normalized);
  shape.push_back(length);
  return x.reshape(shape);
}

Status check_result_shape(const TensorView& x, const TensorView& result) {
  if (std::ranges::equal(x.shape(), result.shape())) return ok_status();
  return invalid_argument("expected a result of the shape of " + x.to_string() + ", got " + result.to_string());
}

// A contiguous copy where the elements do not lie in order: in the result, which may then be read in place.
Result<TensorView> dense(const TensorView& x, const TensorView& result) {
  if (x.is_contiguous()) return x;
  QX_RETURN_IF_ERROR(copy_elements(x, result));
  return result;
}

// Argument 0 with a flat tail. Rows of one dimension may lie as they like, but for those of float64.
Result<TensorView> rows_of_input(const Call& call, size_t num_normalized) {
  const TensorView& x = call.tensor(0);
  if (num_normalized == 1 && x.dtype() != DType::kFloat64) return x;
  QX_RETURN_IF_ERROR(check_result_shape(x, call.result()));
  QX_ASSIGN_OR_RETURN(const TensorView ordered, dense(x, call.result()));
  return with_flat_tail(ordered, num_normalized);
}

struct Affine {
  std::optional<TensorView> weight;
  std::optional<TensorView> bias;
};

Result<std::optional<TensorView>> flat(const TensorView* parameter) {
  if (parameter == nullptr) return std::optional<TensorView>();
  const int64_t shape[] = {parameter->num_elements()};
  QX_ASSIGN_OR_RETURN(TensorView view, parameter->reshape(shape));
  return std::optional(view);
}

// Statistics of rows of f64 numbers, for float64 and for the results that training would want.
void normalize_row(std::vector<double>& row, double eps, double& mean, double& scale) {
  mean = 0;
  for (const double x : row) mean += x / static_cast<double>(row.size());
  double variance = 0;
  for (const double x : row) variance += (x - mean) * (x - mean) / static_cast<double>(row.size());
  scale = 1 / std::sqrt(variance + eps);
  for (double& x : row) x = (x - mean) * scale;
}

Status layer_norm_in_double(const TensorView& x, const Affine& affine, double eps, const TensorView& result) {
  QX_ASSIGN_OR_RETURN(const TensorView from,
                      x.reshape(std::vector<int64_t>{x.num_elements() / x.size(-1), x.size(-1)}));
  std::vector<double> row(static_cast<size_t>(x.size(-1)));
  std::vector<double> weight(row.size(), 1), bias(row.size(), 0);
  const auto length = static_cast<int64_t>(row.size());
  const auto load = [&](const std::optional<TensorView>& parameter, std::vector<double>& values) {
    if (!parameter) return;
    const double* read = load_row(parameter->dtype(), parameter->data(), parameter->stride(0), length, values.data());
    if (read != values.data()) std::copy_n(read, length, values.data());
  };
  load(affine.weight, weight);
  load(affine.bias, bias);
  for (int64_t i = 0; i < from.size(0); ++i) {
    const int64_t offset = i * length * dtype_size_bytes(x.dtype());
    const double* read = load_row(x.dtype(), x.data_as<char>() + offset, 1, length, row.data());
    if (read != row.data()) std::copy_n(read, length, row.data());
    double mean = 0, scale = 0;
    normalize_row(row, eps, mean, scale);
    for (size_t j = 0; j < row.size(); ++j) row[j] = row[j] * weight[j] + bias[j];
    store_row(row.data(), length, result.dtype(), result.data_as<char>() + offset, 1);
  }
  return ok_status();
}

// layer_norm(x, normalized_shape, weight, bias, eps)
Status run_layer_norm(const Call& call) {
  const size_t count = call.integers(1).size();
  QX_ASSIGN_OR_RETURN(const TensorView x, rows_of_input(call, count));
  QX_ASSIGN_OR_RETURN(const TensorView result, with_flat_tail(call.result(), count));
  Affine affine;
  QX_ASSIGN_OR_RETURN(affine.weight, flat(call.optional_tensor(2)));
  QX_ASSIGN_OR_RETURN(affine.bias, flat(call.optional_tensor(3)));
  const double eps = call.real(4, 1e-5);
  if (x.num_elements() == 0) return ok_status();
  if (x.dtype() == DType::kFloat64) {
    const auto fits = [&](const std::optional<TensorView>& parameter) {
      return !parameter || (is_computable(parameter->dtype()) && parameter->size(0) == x.size(-1));
    };
    if (result.dtype() != x.dtype() || !std::ranges::equal(result.shape(), x.shape()) || !fits(affine.weight) ||
        !fits(affine.bias)) {
      return invalid_argument("weight, bias or result do not fit " + x.to_string());
    }
    return layer_norm_in_double(x, affine, eps, result);
  }
  return kernels::layer_norm(x, {affine.weight, affine.bias, eps}, result);
}

// rms_norm(x, normalized_shape, weight, eps), whose eps defaults to the dtype's.
Status run_rms_norm(const Call& call) {
  const size_t count = call.integers(1).size();
  QX_ASSIGN_OR_RETURN(const TensorView x, rows_of_input(call, count));
  QX_ASSIGN_OR_RETURN(const TensorView result, with_flat_tail(call.result(), count));
  QX_ASSIGN_OR_RETURN(const std::optional<TensorView> weight, flat(call.optional_tensor(2)));
  constexpr double kHalfEpsilon = 0x1p-10;
  constexpr double kBFloat16Epsilon = 0x1p-7;
  const double dtype_eps = x.dtype() == DType::kFloat16    ? kHalfEpsilon
                           : x.dtype() == DType::kBFloat16 ? kBFloat16Epsilon
                                                           : std::numeric_limits<float>::epsilon();
  return kernels::rms_norm(x, {weight, std::nullopt, call.real(3, dtype_eps)}, result);
}

double element(const TensorView* parameter, int64_t index, double fallback) {
  if (parameter == nullptr) return fallback;
  double value = 0;
  const int64_t offset = index * parameter->stride(0) * dtype_size_bytes(parameter->dtype());
  return *load_row(parameter->dtype(), parameter->data_as<char>() + offset, 1, 1, &value);
}

// result[channel] = x[channel] * scale + shift for the elements [N, C, ...] of one image and channel.
void scale_channel(const TensorView& x, const TensorView& result, int64_t first, int64_t count, double scale,
                   double shift) {
  double buffer[kRowElements];
  for (int64_t i = 0; i < count; i += kRowElements) {
    const int64_t length = std::min(kRowElements, count - i);
    const char* from = x.data_as<char>() + (first + i) * dtype_size_bytes(x.dtype());
    const double* row = load_row(x.dtype(), from, 1, length, buffer);
    for (int64_t j = 0; j < length; ++j) buffer[j] = row[j] * scale + shift;
    store_row(buffer, length, result.dtype(), result.data_as<char>() + (first + i) * dtype_size_bytes(result.dtype()),
              1);
  }
}

Status check_images(const TensorView& x, const TensorView& result) {
  if (x.num_dims() < 2 || !is_floating_point(x.dtype()) || !is_computable(x.dtype())) {
    return invalid_argument("expected floating point [N, C, ...], got " + x.to_string());
  }
  return check_result_shape(x, result);
}

// The factor and the summand of a channel.
std::pair<double, double> batch_norm_line(const Call& call, int64_t channel, double eps) {
  const double variance = element(call.optional_tensor(4), channel, 1);
  const double scale = element(call.optional_tensor(1), channel, 1) / std::sqrt(variance + eps);
  return {scale, element(call.optional_tensor(2), channel, 0) - element(call.optional_tensor(3), channel, 0) * scale};
}

// Dense images with adjacent channels.
bool is_channels_last(const TensorView& x) {
  int64_t expected = x.size(1);
  for (int dim = x.num_dims() - 1; dim >= 2; --dim) {
    if (x.stride(dim) != expected) return false;
    expected *= x.size(dim);
  }
  return x.stride(1) == 1 && x.stride(0) == expected;
}

// Pixel after pixel, both dense with adjacent channels.
void batch_norm_pixels(const Call& call, double eps, const TensorView& x, const TensorView& result) {
  const int64_t channels = x.size(1);
  std::vector<double> scales(static_cast<size_t>(channels)), shifts(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) {
    std::tie(scales[static_cast<size_t>(c)], shifts[static_cast<size_t>(c)]) = batch_norm_line(call, c, eps);
  }
  const auto at = [](const TensorView& view, int64_t index) {
    return view.data_as<char>() + index * dtype_size_bytes(view.dtype());
  };
  const int64_t grain = std::max<int64_t>(1, 16384 / channels);
  parallel_for(0, x.num_elements() / channels, grain, [&](int64_t begin, int64_t end) {
    double buffer[kRowElements];
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      for (int64_t c = 0; c < channels; c += kRowElements) {
        const int64_t length = std::min(kRowElements, channels - c);
        const double* row = load_row(x.dtype(), at(x, pixel * channels + c), 1, length, buffer);
        for (int64_t i = 0; i < length; ++i) {
          buffer[i] = row[i] * scales[static_cast<size_t>(c + i)] + shifts[static_cast<size_t>(c + i)];
        }
        store_row(buffer, length, result.dtype(), at(result, pixel * channels + c), 1);
      }
    }
  });
}

Status batch_norm(const Call& call, double eps) {
  const TensorView& result = call.result();
  QX_RETURN_IF_ERROR(check_images(call.tensor(0), result));
  if (result.num_elements() == 0) return ok_status();
  const bool by_pixels = !result.is_contiguous() && is_channels_last(result);
  TensorView x = call.tensor(0);
  if (!by_pixels) {
    QX_ASSIGN_OR_RETURN(x, dense(x, result));
  } else if (!is_channels_last(x)) {
    QX_RETURN_IF_ERROR(copy_elements(x, result));
    x = result;
  }
  const int64_t channels = x.size(1);
  const int64_t pixels = x.num_elements() / (x.size(0) * channels);
  for (size_t i = 1; i < 5; ++i) {
    const TensorView* parameter = call.optional_tensor(i);
    if (parameter != nullptr && (parameter->num_dims() != 1 || parameter->size(0) != channels)) {
      return invalid_argument("argument " + std::to_string(i) + ": expected [" + std::to_string(channels) + "], got " +
                              parameter->to_string());
    }
  }
  if (by_pixels) {
    batch_norm_pixels(call, eps, x, result);
    return ok_status();
  }
  parallel_for(0, x.size(0) * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const auto [scale, shift] = batch_norm_line(call, plane % channels, eps);
      scale_channel(x, result, plane * pixels, pixels, scale, shift);
    }
  });
  return ok_status();
}

// batch_norm(x, weight, bias, mean, variance, training, momentum, eps, cudnn)
Status run_batch_norm(const Call& call) {
  if (call.flag(5)) return unimplemented("training: expected False, got True: only inference is supported");
  return batch_norm(call, call.real(7, 1e-5));
}
// _native_batch_norm_legit_no_training(x, weight, bias, mean, variance, momentum, eps)
Status run_native_batch_norm(const Call& call) { return batch_norm(call, call.real(6, 1e-5)); }

// Statistics over `count` contiguous elements, then each of the group's channels with its own weight and bias.
void normalize_group(const TensorView& x, const TensorView& result, int64_t first, int64_t channels_of_group,
                     int64_t pixels, int64_t first_channel, const TensorView* weight, const TensorView* bias,
                     double eps) {
  const int64_t count = channels_of_group * pixels;
  double buffer[kRowElements];
  double mean = 0;
  double squares = 0;
  for (int pass = 0; pass < 2; ++pass) {
    double sum = 0;
    for (int64_t i = 0; i < count; i += kRowElements) {
      const int64_t length = std::min(kRowElements, count - i);
      const char* from = x.data_as<char>() + (first + i) * dtype_size_bytes(x.dtype());
      const double* row = load_row(x.dtype(), from, 1, length, buffer);
      for (int64_t j = 0; j < length; ++j) sum += pass == 0 ? row[j] : (row[j] - mean) * (row[j] - mean);
    }
    (pass == 0 ? mean : squares) = sum / static_cast<double>(count);
  }
  const double inverse = 1 / std::sqrt(squares + eps);
  for (int64_t c = 0; c < channels_of_group; ++c) {
    const double scale = element(weight, first_channel + c, 1) * inverse;
    scale_channel(x, result, first + c * pixels, pixels, scale, element(bias, first_channel + c, 0) - mean * scale);
  }
}

Status group_norm(const Call& call, const TensorView* weight, const TensorView* bias, int64_t groups, double eps) {
  const TensorView& result = call.result();
  QX_RETURN_IF_ERROR(check_images(call.tensor(0), result));
  if (result.num_elements() == 0) return ok_status();
  QX_ASSIGN_OR_RETURN(const TensorView x, dense(call.tensor(0), result));
  const int64_t channels = x.size(1);
  if (groups < 1 || channels % groups != 0) {
    return invalid_argument("num_groups: expected a divisor of " + std::to_string(channels) + ", got " +
                            std::to_string(groups));
  }
  for (const TensorView* parameter : {weight, bias}) {
    if (parameter != nullptr && (parameter->num_dims() != 1 || parameter->size(0) != channels)) {
      return invalid_argument("weight and bias: expected [" + std::to_string(channels) + "], got " +
                              parameter->to_string());
    }
  }
  const int64_t pixels = x.num_elements() / (x.size(0) * channels);
  const int64_t of_group = channels / groups;
  parallel_for(0, x.size(0) * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      normalize_group(x, result, group * of_group * pixels, of_group, pixels, group % groups * of_group, weight, bias,
                      eps);
    }
  });
  return ok_status();
}

// group_norm(x, num_groups, weight, bias, eps, cudnn)
Status run_group_norm(const Call& call) {
  return group_norm(call, call.optional_tensor(2), call.optional_tensor(3), call.integer(1), call.real(4, 1e-5));
}
// native_group_norm(x, weight, bias, N, C, HxW, group, eps)
Status run_native_group_norm(const Call& call) {
  return group_norm(call, call.optional_tensor(1), call.optional_tensor(2), call.integer(6), call.real(7));
}

constexpr Operator kOperators[] = {
    {"aten.layer_norm.default", "TIttgb", run_layer_norm},
    {.name = "aten.native_layer_norm.default", .signature = "TIttg", .run = run_layer_norm, .num_computed = 1},
    {"aten.rms_norm.default", "TItg", run_rms_norm},
    {.name = "aten._fused_rms_norm.default", .signature = "TItg", .run = run_rms_norm, .num_computed = 1},
    {.name = "aten.batch_norm.default",
     .signature = "TttTTbgg*",
     .run = run_batch_norm,
     .layout = ChannelLayout::kKeeps},
    {.name = "aten._native_batch_norm_legit_no_training.default",
     .signature = "TttTTgg",
     .run = run_native_batch_norm,
     .num_computed = 1,
     .layout = ChannelLayout::kKeeps},
    {"aten.group_norm.default", "Tittg*", run_group_norm},
    {.name = "aten.native_group_norm.default",
     .signature = "Ttt***ig",
     .run = run_native_group_norm,
     .num_computed = 1},
};

}  // namespace

std::span<const Operator> norm_operators() { return kOperators; }

}  // namespace qx::lite
