// Functions of one variable, applied to every element: transcendental functions and activations.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Errors in f32, in units in the last place of the exact result, over all inputs (see vector_math-inl.h):
//   kExp, kLog 1; kErf 1.5; kTanh 2; kSigmoid 2.5; kSilu 3 (and 2^-142 absolute, where results are tiny)
//   kGeluErf, kGeluTanh |error| <= 2^-22 |x|
// NaN gives NaN; infinities and denormals are handled as the exact function demands.
enum class UnaryFunction {
  kExp,
  kLog,  // -inf at 0, NaN below
  kErf,
  kTanh,
  kSigmoid,   // 1 / (1 + exp(-x))
  kSilu,      // x sigmoid(x)
  kGeluErf,   // x/2 (1 + erf(x / sqrt 2))
  kGeluTanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

// output = function(input) in f32. float32, bfloat16, float16; equal shape and dtype; any strides; output may be input.
// Thread-safe; the same bits for any number of threads.
//   apply_unary(UnaryFunction::kTanh, x, x)
Status apply_unary(UnaryFunction function, const TensorView& input, const TensorView& output);

// The same on arrays of equal length; output may be input.
Status exp(std::span<const float> input, std::span<float> output);
Status log(std::span<const float> input, std::span<float> output);
Status erf(std::span<const float> input, std::span<float> output);
Status tanh(std::span<const float> input, std::span<float> output);

}  // namespace qx::kernels
