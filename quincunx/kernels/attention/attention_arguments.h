// What the forms of attention share about their arguments.
#pragma once

#include "quincunx/kernels/attention/attention.h"
#include "quincunx/kernels/attention/attention_kernel.h"

namespace qx::kernels {

// Dtypes, ranks, shapes, options and overlaps, as attention() documents them.
Status check_attention_arguments(const TensorView& query, const TensorView& key, const TensorView& value,
                                 const AttentionOptions& options, const TensorView& output);

// The rows of one head of a [B, H, S, D] view, from first_row on.
inline StridedRows head_rows(const TensorView& view, int64_t batch, int64_t head, int64_t first_row = 0) {
  return {view.data_as<float>() + batch * view.stride(0) + head * view.stride(1) + first_row * view.stride(2),
          view.stride(2), view.stride(3)};
}

}  // namespace qx::kernels
