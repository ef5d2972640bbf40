// Functions of one variable, applied to every element: transcendental functions and activations.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Errors in f32 over all inputs (see vector_math-inl.h), in units in the last place of the exact result:
//   kRelu, kRelu6: none
//   kLog: 1
//   kExp: 1.25
//   kErf, kRsqrt: 1.5
//   kTanh, kSigmoid, kSin, kCos: 2
//   kSilu, kSoftplus: 3; kSilu besides 2^-142 where results are tiny
// and otherwise:
//   kGeluErf, kGeluTanh, kHardswish: 2^-22 |x|
//   kHardsigmoid: 2^-22
//   kGeluQuick: 2^-21 (1 + |x|) of the result and 2^-140
// With AVX-512 on bf16, besides the rounding of the result: 2^-13 of it for kSilu, 2^-16 |x| for kGeluErf, kGeluTanh.
// Results of bf16 GELU for x from -4 on are also within 2^-8 of themselves beside their rounding; further below, where
// they are less than 2^-12.9, nothing holds relative to them.
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
  kSin,       // angles of any size are reduced exactly; NaN at infinities
  kCos,
  kRsqrt,        // 1 / sqrt(x): infinity at 0, NaN below
  kRelu,         // max(x, 0)
  kRelu6,        // min(max(x, 0), 6)
  kGeluQuick,    // x sigmoid(1.702 x)
  kHardsigmoid,  // min(max(x + 3, 0), 6) / 6
  kHardswish,    // x hardsigmoid(x)
  kSoftplus,     // log(1 + exp(x))
};
inline constexpr int kNumUnaryFunctions = 17;

// "exp", "gelu_tanh" ...: the enumerator's words; an unknown name is INVALID_ARGUMENT.
Result<UnaryFunction> unary_function_from_name(std::string_view name);

// output = function(input) in f32. float32, bfloat16, float16; equal shape and dtype; any strides; output may be input.
// Thread-safe; the same bits for any number of threads.
//   apply_unary(UnaryFunction::kTanh, x, x)
Status apply_unary(UnaryFunction function, const TensorView& input, const TensorView& output);

// output = function(gate) * up, the gated linear units: kSilu for SwiGLU, kGeluErf or kGeluTanh for GeGLU, kSigmoid for
// GLU. All three of one shape and dtype, any strides (gate and up may be the halves of one projection); computed in f32
// and rounded once; output may be gate or up.
//   apply_gated(UnaryFunction::kSilu, gate, up, gate)
Status apply_gated(UnaryFunction function, const TensorView& gate, const TensorView& up, const TensorView& output);

// The same on arrays of equal length; output may be input.
Status exp(std::span<const float> input, std::span<float> output);
Status log(std::span<const float> input, std::span<float> output);
Status sin(std::span<const float> input, std::span<float> output);
Status cos(std::span<const float> input, std::span<float> output);
Status tanh(std::span<const float> input, std::span<float> output);
Status erf(std::span<const float> input, std::span<float> output);
Status sigmoid(std::span<const float> input, std::span<float> output);
Status rsqrt(std::span<const float> input, std::span<float> output);

}  // namespace qx::kernels
