// What decode_attention() and paged_decode_attention() demand of their arguments.
#pragma once

#include "quincunx/kernels/attention/decode_attention.h"

namespace qx::kernels {

Status check_decode_arguments(const TensorView& query, const TensorView& keys, const TensorView& values,
                              const DecodeAttentionOptions& options, const TensorView& output);
Status check_paged_decode_arguments(const TensorView& query, const PagedCache& cache,
                                    const DecodeAttentionOptions& options, const TensorView& output);

// Entry i of a row of a block table, int32 or int64.
inline int64_t table_entry(const TensorView& table, int64_t batch, int64_t i) {
  const int64_t at = batch * table.stride(0) + i * table.stride(1);
  return table.dtype() == DType::kInt32 ? table.data_as<int32_t>()[at] : table.data_as<int64_t>()[at];
}

}  // namespace qx::kernels
