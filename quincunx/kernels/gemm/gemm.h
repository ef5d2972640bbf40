// Matrix product in f32 with an epilogue:
//
//   output[M, N] = row_scale[M] * activation(scale * (A[M, K] B[K, N]) + bias[N]) + residual[M, N]
//
// B is packed into panels of 16 columns, one layout for every instruction set. Pack a weight once and use it often;
// the entry that takes B as it is packs it on the fly. The rows of the output do not depend on how many rows A has, nor
// do the bits depend on the number of threads: K is cut by its length alone and summed in a fixed order.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

enum class Activation : uint8_t { kNone, kRelu, kGeluTanh, kGeluErf, kSilu };

// "none", "relu", "gelu_tanh", "gelu_erf" or "silu".
Result<Activation> activation_from_name(std::string_view name);

struct GemmOptions {
  float scale = 1.0f;
  const TensorView* bias = nullptr;  // f32 [N], any stride
  Activation activation = Activation::kNone;
  const TensorView* residual = nullptr;   // f32 [M, N], any strides
  const TensorView* row_scale = nullptr;  // f32 [M], any stride
};

// B[inner, columns] in panels of 16 columns: panel p holds rows 0 ... inner-1, each as 16 consecutive floats, padded
// with zeros beyond the last column. Does not own its memory.
struct PackedMatrix {
  const float* data = nullptr;
  int64_t inner = 0;
  int64_t columns = 0;
};

// Floats that a packed [inner, columns] matrix takes.
Result<int64_t> packed_matrix_size(int64_t inner, int64_t columns);

// Packs `b`, f32 [K, N] with any strides (a torch.nn.Linear weight [N, K] is a view with strides (1, K)), into
// `storage`, which must hold packed_matrix_size(K, N) floats and outlive the result. 64-byte alignment helps.
Result<PackedMatrix> pack_b(const TensorView& b, std::span<float> storage);

// The views may have any strides, the output not zero ones; it must not overlap an input. A lack of scratch memory is
// kResourceExhausted. Thread-safe.
Status gemm(const TensorView& a, const PackedMatrix& b, const TensorView& output, const GemmOptions& options = {});
Status gemm(const TensorView& a, const TensorView& b, const TensorView& output, const GemmOptions& options = {});

}  // namespace qx::kernels
