// Conversion between the floating-point storage types. Widening is exact; narrowing rounds to nearest even.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// True for the types that kernels read and write as f32: float32, bfloat16, float16.
bool is_kernel_float(DType dtype);

// out[i] = float(source[i * stride]) for i < count. `dtype` must satisfy is_kernel_float. Thread-safe.
void load_row_as_f32(DType dtype, const void* source, int64_t stride, int64_t count, float* out);
// destination[i * stride] = dtype(row[i]) for i < count.
void store_row_from_f32(const float* row, int64_t count, DType dtype, void* destination, int64_t stride);

// destination = source, element by element. Equal shapes, any strides; float32, bfloat16 and float16 in any
// combination. The two may be the same memory only if they have the same dtype and strides. Thread-safe.
//   convert(weights_f32, weights_bf16)
Status convert(const TensorView& source, const TensorView& destination);

}  // namespace qx::kernels
