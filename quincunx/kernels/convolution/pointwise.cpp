#include "quincunx/kernels/convolution/pointwise.h"

#include "quincunx/base/check.h"
#include "quincunx/kernels/gemm/matrix_product.h"

namespace qx::kernels {
namespace {

constexpr SpatialSizes kEach = {1, 1, 1};

// More pixels of a plane fill the tiles of panels, which are larger than gemm's. On a Zen 4 core. The number of planes
// does not count: chunks of a video get the bits of the whole.
constexpr int64_t kMaxProductPixels = 16;

bool reads_no_padding(const ConvolutionProblem& problem) {
  for (int i = 0; i < kMaxSpatialDims; ++i) {
    if (problem.padding[i] != 0 || (problem.out[i] - 1) * problem.stride[i] >= problem.in[i]) return false;
  }
  return true;
}

bool has_plain_pixels(const ConvolutionProblem& problem) {
  return problem.num_taps() == 1 && problem.groups == 1 && !problem.transposed && reads_no_padding(problem);
}

// The pixels of `sizes` are evenly apart in the input, the output and the residual.
bool are_even(const ConvolutionProblem& problem, const SpatialSizes& sizes) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  return even_step(problem.input_layout, sizes, problem.stride) != 0 &&
         even_step(problem.output_layout, sizes, kEach) != 0 &&
         (epilogue.residual == nullptr || even_step(epilogue.residual_layout, sizes, kEach) != 0);
}

SpatialSizes frame_of(const ConvolutionProblem& problem) { return {1, problem.out[1], problem.out[2]}; }

// Where channels are apart, a dense copy takes the place of the output or residual.
bool is_even_or_copied(const ImageLayout& layout, const ConvolutionProblem& problem) {
  return !has_adjacent_channels(layout, problem.out_channels) || even_step(layout, frame_of(problem), kEach) != 0;
}

// Lets `product` begin with an image or, where `by_frames`, with a frame.
void move_to(MatrixProduct& product, const ConvolutionProblem& problem, int64_t index, bool by_frames) {
  const int64_t frames = by_frames ? problem.out[0] : 1;
  const int64_t image = index / frames;
  const int64_t frame = index % frames;
  const auto offset = [&](const ImageLayout& layout, int64_t frame_stride) {
    return image * layout.image_stride + frame * frame_stride;
  };
  const ImageLayout& residual = problem.epilogue.residual_layout;
  product.a.data = problem.input + offset(problem.input_layout, problem.input_layout.strides[0] * problem.stride[0]);
  product.c = problem.output + offset(problem.output_layout, problem.output_layout.strides[0]);
  if (problem.epilogue.residual != nullptr) {
    product.epilogue.residual = problem.epilogue.residual + offset(residual, residual.strides[0]);
  }
}

}  // namespace

int64_t even_step(const ImageLayout& layout, const SpatialSizes& sizes, const SpatialSizes& stride) {
  int64_t step = 0;
  int64_t expected = 0;
  for (int i = kMaxSpatialDims - 1; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    const int64_t own = layout.strides[i] * stride[i];
    // An expanded view repeats pixels.
    if (own == 0) return 0;
    if (step == 0) step = expected = own;
    if (own != expected) return 0;
    expected *= sizes[i];
  }
  return step == 0 ? layout.strides[kMaxSpatialDims - 1] : step;
}

std::optional<Activation> product_activation(ConvolutionActivation activation) {
  switch (activation) {
    case ConvolutionActivation::kNone: return Activation::kNone;
    case ConvolutionActivation::kRelu: return Activation::kRelu;
    case ConvolutionActivation::kGeluTanh: return Activation::kGeluTanh;
    case ConvolutionActivation::kGeluErf: return Activation::kGeluErf;
    case ConvolutionActivation::kSilu: return Activation::kSilu;
    case ConvolutionActivation::kHardswish:
    case ConvolutionActivation::kClamp: break;
  }
  return std::nullopt;
}

bool has_even_pixels(const ConvolutionProblem& problem) {
  return has_plain_pixels(problem) && are_even(problem, problem.out);
}

bool is_pointwise(const ConvolutionProblem& problem) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  if (!has_plain_pixels(problem) || problem.out[1] * problem.out[2] > kMaxProductPixels) return false;
  if (epilogue.scale != nullptr || !product_activation(epilogue.activation).has_value()) return false;
  if (!has_adjacent_channels(problem.input_layout, problem.in_channels) ||
      even_step(problem.input_layout, frame_of(problem), problem.stride) == 0 ||
      !is_even_or_copied(problem.output_layout, problem)) {
    return false;
  }
  if (epilogue.residual == nullptr) return true;
  const bool comes_last = !epilogue.residual_before_activation || epilogue.activation == ConvolutionActivation::kNone;
  return comes_last && is_even_or_copied(epilogue.residual_layout, problem);
}

void convolve_pointwise(const ConvolutionProblem& problem) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  const ImageLayout& residual = epilogue.residual_layout;
  const std::optional<Activation> activation = product_activation(epilogue.activation);
  QX_CHECK(activation.has_value());  // see is_pointwise
  const bool by_frames = !are_even(problem, problem.out);
  const SpatialSizes sizes = by_frames ? frame_of(problem) : problem.out;
  MatrixProduct product;
  product.a = {problem.input, even_step(problem.input_layout, sizes, problem.stride), 1};
  product.rows = sizes[0] * sizes[1] * sizes[2];
  product.inner = problem.in_channels;
  product.packed_b = problem.weight;
  product.columns = problem.out_channels;
  product.c = problem.output;
  product.c_row_stride = even_step(problem.output_layout, sizes, kEach);
  product.epilogue.bias = epilogue.bias;
  product.epilogue.activation = *activation;
  if (epilogue.residual != nullptr) {
    product.epilogue.residual = epilogue.residual;
    product.epilogue.residual_row_stride = even_step(residual, sizes, kEach);
  }
  const auto joins = [&](const ImageLayout& layout, int64_t step) {
    return layout.image_stride == step * product.rows;
  };
  // Images of equal steps are one product: their weights are read once.
  const bool is_one = !by_frames && joins(problem.input_layout, product.a.row_stride) &&
                      joins(problem.output_layout, product.c_row_stride) &&
                      (epilogue.residual == nullptr || joins(residual, product.epilogue.residual_row_stride));
  if (is_one) product.rows *= problem.images;
  const int64_t num_products = is_one ? 1 : problem.images * (by_frames ? problem.out[0] : 1);
  for (int64_t i = 0; i < num_products; ++i) {
    move_to(product, problem, i, by_frames);
    multiply(product);
  }
}

}  // namespace qx::kernels
