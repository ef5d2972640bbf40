// What block_sparse_attention() demands of its lists, partitions and orders.
#pragma once

#include <span>
#include <string_view>

#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

namespace qx::kernels {

// Rising from 0 to `length`.
Status check_block_starts(std::string_view name, std::span<const int64_t> starts, int64_t length);
// Empty or a permutation of 0 ... length - 1.
Status check_order(std::string_view name, std::span<const int64_t> order, int64_t length);
// Everything that BlockSparseOptions adds to AttentionOptions.
Status check_block_lists(const TensorView& query, const TensorView& key, const BlockSparseOptions& options);

}  // namespace qx::kernels
