// What the forms of attention share about their arguments.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>

#include "quincunx/kernels/attention/attention.h"
#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/convert/argument_checks.h"

namespace qx::kernels {

// Dtypes, ranks, shapes, options and overlaps, as attention() documents them.
Status check_attention_arguments(const TensorView& query, const TensorView& key, const TensorView& value,
                                 const AttentionOptions& options, const TensorView& output);

// Parts of it: float32, bfloat16 or float16, all alike, of `rank` dimensions.
Status check_attention_dtypes(const TensorView& query, const TensorView& key, const TensorView& value,
                              const TensorView& output, int rank);
// For tensors [batch, heads, length, head size] of other names.
Status check_head_dim(std::string_view name, const TensorView& view);
Status check_attention_shapes(NamedView query, NamedView key, NamedView value, const TensorView& output);
Status check_attention_scale(std::optional<float> scale);
Status check_key_lengths(std::span<const int64_t> lengths, int64_t batch, int64_t num_keys);
Status check_log_sum_exp(const TensorView& query, const TensorView& lse, std::initializer_list<NamedView> others);
// Elements of their own, none of the inputs'.
Status check_output_memory(std::string_view name, const TensorView& output, std::initializer_list<NamedView> inputs);

// The rows of one head of a [B, H, S, D] view, from first_row on.
inline StridedRows head_rows(const TensorView& view, int64_t batch, int64_t head, int64_t first_row = 0) {
  int64_t offset = 0;  // without elements the data may be null
  if (view.num_elements() != 0) offset = batch * view.stride(0) + head * view.stride(1) + first_row * view.stride(2);
  return {view.data_as<char>() + offset * dtype_size_bytes(view.dtype()), view.stride(2), view.stride(3), view.dtype()};
}

}  // namespace qx::kernels
