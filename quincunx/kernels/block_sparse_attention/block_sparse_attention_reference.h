// The scalar reference of block_sparse_attention.h: which keys a query sees. attention_reference does the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qx::kernels {

// The positions of the named blocks that lie below `end`, in order.
std::vector<int64_t> block_sparse_visible_keys(std::span<const int64_t> named_blocks,
                                               std::span<const int64_t> key_starts, int64_t end);

}  // namespace qx::kernels
