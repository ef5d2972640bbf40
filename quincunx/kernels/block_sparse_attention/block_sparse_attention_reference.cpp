#include "quincunx/kernels/block_sparse_attention/block_sparse_attention_reference.h"

namespace qx::kernels {

std::vector<int64_t> block_sparse_visible_keys(std::span<const int64_t> named_blocks,
                                               std::span<const int64_t> key_starts, int64_t end) {
  std::vector<int64_t> positions;
  for (const int64_t block : named_blocks) {
    const auto index = static_cast<size_t>(block);
    for (int64_t position = key_starts[index]; position < key_starts[index + 1]; ++position) {
      if (position < end) positions.push_back(position);
    }
  }
  return positions;
}

}  // namespace qx::kernels
