// Runs an f32 row kernel over the rows of strided float32, bfloat16 or float16 tensors, in parallel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Elements a task handles at least: below this a thread costs more than it saves.
inline constexpr int64_t kRowLoopGrain = 16384;

// Calls kernel(const float* x, float* y) for every row of the last dimension; x and y may be the same memory. Rows that
// are not contiguous f32 pass through a buffer. The kernel must not throw. `input` and `output` have equal shapes.
template <typename Kernel>
void for_each_row_as_f32(const TensorView& input, const TensorView& output, const Kernel& kernel) {
  const RowOffsets from(input);
  const RowOffsets to(output);
  const int64_t length = from.row_length();
  if (length == 0 || from.num_rows() == 0) return;
  const bool direct_input = input.dtype() == DType::kFloat32 && from.row_stride() == 1;
  const bool direct_output = output.dtype() == DType::kFloat32 && to.row_stride() == 1;
  const int64_t input_bytes = dtype_size_bytes(input.dtype());
  const int64_t output_bytes = dtype_size_bytes(output.dtype());
  parallel_for(0, from.num_rows(), std::max<int64_t>(1, kRowLoopGrain / length), [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(direct_input && direct_output ? 0 : static_cast<size_t>(length));
    for (int64_t row = begin; row < end; ++row) {
      char* in = input.data_as<char>() + from.offset(row) * input_bytes;
      char* out = output.data_as<char>() + to.offset(row) * output_bytes;
      if (!direct_input) load_row_as_f32(input.dtype(), in, from.row_stride(), length, buffer.data());
      const float* x = direct_input ? reinterpret_cast<const float*>(in) : buffer.data();
      kernel(x, direct_output ? reinterpret_cast<float*>(out) : buffer.data());
      if (!direct_output) store_row_from_f32(buffer.data(), length, output.dtype(), out, to.row_stride());
    }
  });
}

}  // namespace qx::kernels
