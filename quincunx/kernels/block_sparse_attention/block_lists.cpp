#include "quincunx/kernels/block_sparse_attention/block_lists.h"

#include <algorithm>

#include "quincunx/kernels/attention/attention_arguments.h"

namespace qx::kernels {
namespace {

// Rows of the largest register tile, a multiple of the others: pieces of a query block end at multiples of it.
constexpr int64_t kRowsOfTile = 12;

std::vector<QueryPiece> pieces_of(std::span<const int64_t> starts) {
  std::vector<QueryPiece> pieces;
  for (size_t block = 0; block + 1 < starts.size(); ++block) {
    const int64_t rows = starts[block + 1] - starts[block];
    const int64_t parts = (rows + kAttentionQueryBlock - 1) / kAttentionQueryBlock;
    const int64_t even = (rows + parts - 1) / parts;
    const int64_t step = std::min(kAttentionQueryBlock, (even + kRowsOfTile - 1) / kRowsOfTile * kRowsOfTile);
    for (int64_t row = 0; row < rows; row += step) {
      pieces.push_back({static_cast<int64_t>(block), starts[block] + row, std::min(step, rows - row)});
    }
  }
  return pieces;
}

std::vector<int64_t> packed_starts_of(std::span<const int64_t> starts) {
  std::vector<int64_t> packed(starts.size());
  for (size_t i = 1; i < starts.size(); ++i) {
    packed[i] = packed[i - 1] + round_up_to_panel(starts[i] - starts[i - 1]);
  }
  return packed;
}

StridedRows ordered_rows(const TensorView& view, int64_t head, int64_t first_row, std::span<const int64_t> order) {
  const int64_t batch = head / view.size(1);
  if (order.empty()) return head_rows(view, batch, head % view.size(1), first_row);
  StridedRows rows = head_rows(view, batch, head % view.size(1));
  rows.order = order.data() + first_row;
  return rows;
}

}  // namespace

BlockLists::BlockLists(const TensorView& query, const TensorView& key, const BlockSparseOptions& options)
    : query_(query),
      key_(key),
      options_(options),
      pieces_(pieces_of(options.query_starts)),
      packed_starts_(packed_starts_of(options.key_starts)) {}

int64_t BlockLists::list_length(int64_t query_head, int64_t block) const {
  const TensorView& num = options_.select_num_idx;
  return num.data_as<int64_t>()[query_head / query_.size(1) * num.stride(0) +
                                query_head % query_.size(1) * num.stride(1) + block * num.stride(2)];
}

int64_t BlockLists::list_entry(int64_t query_head, int64_t block, int64_t index) const {
  const TensorView& idx = options_.select_idx;
  return idx
      .data_as<int64_t>()[query_head / query_.size(1) * idx.stride(0) + query_head % query_.size(1) * idx.stride(1) +
                          block * idx.stride(2) + index * idx.stride(3)];
}

KeySpan BlockLists::keys_of_block(int64_t batch, int64_t block) const {
  const auto lengths = options_.attention.key_lengths;
  const int64_t num_keys = lengths.empty() ? key_.size(2) : lengths[static_cast<size_t>(batch)];
  const int64_t first = options_.key_starts[static_cast<size_t>(block)];
  const int64_t last = std::min(options_.key_starts[static_cast<size_t>(block) + 1], num_keys);
  return {packed_start(block), first, std::max<int64_t>(last - first, 0)};
}

void BlockLists::collect_spans(int64_t query_head, int64_t block, std::vector<KeySpan>& spans) const {
  spans.clear();
  const int64_t length = list_length(query_head, block);
  for (int64_t i = 0; i < length; ++i) {
    const KeySpan keys = keys_of_block(query_head / query_.size(1), list_entry(query_head, block, i));
    if (keys.count == 0) break;
    if (!spans.empty() && spans.back().packed + spans.back().count == keys.packed) {
      spans.back().count += keys.count;
    } else {
      spans.push_back(keys);
    }
  }
}

std::vector<uint8_t> BlockLists::used_blocks(int64_t first_key_head, int64_t count) const {
  std::vector<uint8_t> used(static_cast<size_t>(count * num_key_blocks()));
  const auto num_query_blocks = static_cast<int64_t>(options_.query_starts.size()) - 1;
  for (int64_t head = first_key_head * queries_per_key(); head < (first_key_head + count) * queries_per_key(); ++head) {
    const int64_t row = (head / queries_per_key() - first_key_head) * num_key_blocks();
    for (int64_t block = 0; block < num_query_blocks; ++block) {
      const int64_t length = list_length(head, block);
      for (int64_t i = 0; i < length; ++i) used[static_cast<size_t>(row + list_entry(head, block, i))] = 1;
    }
  }
  return used;
}

StridedRows BlockLists::query_rows(const TensorView& view, int64_t query_head, int64_t first_row) const {
  return ordered_rows(view, query_head, first_row, options_.query_order);
}
StridedRows BlockLists::key_rows(const TensorView& view, int64_t key_head, int64_t first_row) const {
  return ordered_rows(view, key_head, first_row, options_.key_order);
}

MaskRows BlockLists::rows_of_mask(int64_t query_head, int64_t first_row) const {
  const int64_t batch = query_head / query_.size(1), head = query_head % query_.size(1);
  MaskRows rows = mask_rows(*options_.attention.attn_mask, batch, head, options_.query_order.empty() ? first_row : 0);
  if (!options_.query_order.empty()) rows.row_order = options_.query_order.data() + first_row;
  if (!options_.key_order.empty()) rows.key_order = options_.key_order.data();
  return rows;
}

}  // namespace qx::kernels
