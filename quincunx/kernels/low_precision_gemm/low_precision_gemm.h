// Matrix product with weights in 16, 8 or 4 bits, sums in f32 (exact integers within a group), and gemm's epilogue:
//
//   output[M, N] = activation(A[M, K] W[K, N] + bias[N]) + residual[M, N]
//
// The weights are packed once. Who takes them as they are (InputQuantization::kNone) multiplies f32 activations by
// weights that are widened to f32 in registers: the error is that of the weights alone. The other two kinds round the
// activations to 8 bits as well, so that integer instructions do the work: faster by far at M = 1, and another numeric
// contract, which is why it has to be asked for.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// What is stored of W. The integer formats are symmetric: w = q * scale, with q rounded to nearest even and the scale
// rounded up, so that |w - q * scale| <= scale / 2 for every weight.
enum class WeightFormat : uint8_t {
  kBFloat16,     // 16 bits a weight, rounded to nearest even
  kFloat16,      // the same
  kInt8,         // q in [-127, 127], one f32 scale = largest magnitude / 127 for each column of W
  kInt8Grouped,  // q in [-127, 127], one f16 scale for 32 consecutive k of a column: 8.5 bits a weight
  kInt4Grouped,  // q in [-7, 7], one f16 scale for 32 consecutive k of a column: 4.5 bits a weight
};

// "bfloat16", "float16", "int8", "int8_grouped" or "int4_grouped".
Result<WeightFormat> weight_format_from_name(std::string_view name);
std::string_view weight_format_name(WeightFormat format);

// What happens to the activations before they are multiplied.
enum class InputQuantization : uint8_t {
  kNone,     // nothing: f32, bf16 and f16 activations keep their values
  kDynamic,  // q = round(x * 127 / max|x|), the maximum being that of the row (kInt8) or of 32 k (grouped formats)
  kStatic,   // kInt8 alone: q = clamp(round(x / input_scale) + input_zero_point, -128, 127)
};
// "none", "dynamic" or "static".
Result<InputQuantization> input_quantization_from_name(std::string_view name);

struct LowPrecisionOptions {
  InputQuantization input = InputQuantization::kNone;
  float input_scale = 1.0f;          // kStatic: positive and finite
  int32_t input_zero_point = 0;      // kStatic: in [-128, 127]
  const TensorView* bias = nullptr;  // f32, bf16 or f16 [N], any stride
  Activation activation = Activation::kNone;
  const TensorView* residual = nullptr;  // f32, bf16 or f16 [M, N], any strides
};

// W[inner, columns] in panels of 16 columns. Does not own its memory.
struct PackedWeight {
  const uint8_t* data = nullptr;
  int64_t inner = 0;
  int64_t columns = 0;
  WeightFormat format = WeightFormat::kBFloat16;
};

// Bytes that a packed [inner, columns] weight takes.
Result<int64_t> packed_weight_size_bytes(WeightFormat format, int64_t inner, int64_t columns);

// Rounds and packs `weight`: f32, bf16 or f16 [K, N] with any strides (a torch.nn.Linear weight [N, K] is a view with
// strides (1, K)), into `storage`, which must hold packed_weight_size_bytes and outlive the result. The integer formats
// refuse NaN and infinities, the grouped ones also magnitudes whose scale f16 cannot hold (above 65504 * 127 for 8
// bits, 65504 * 7 for 4).
Result<PackedWeight> pack_weight(const TensorView& weight, WeightFormat format, std::span<uint8_t> storage);

// The weights as the products see them, to f32 `output` [K, N] with any strides.
Status unpack_weight(const PackedWeight& weight, const TensorView& output);

// a, output: f32, bf16 or f16, in any combination and with any strides; the output must not overlap an input.
// A row of the output depends neither on the number of rows nor on that of the threads. Thread-safe.
//
// NaN and infinities: with kNone as in gemm. With kDynamic a row (a group of 32) that holds one makes that row of the
// output NaN. With kStatic infinities saturate and a NaN makes its row NaN.
// Denormals: activations keep them but in one case: bf16 activations times bf16 weights on a CPU with AVX-512 BF16 or
// AMX, whose vdpbf16ps and tdpbf16ps take denormal operands and sums for zero.
Status low_precision_gemm(const TensorView& a, const PackedWeight& weight, const TensorView& output,
                          const LowPrecisionOptions& options = {});

}  // namespace qx::kernels
