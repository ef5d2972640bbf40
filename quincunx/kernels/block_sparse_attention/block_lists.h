// The lists of block_sparse_attention() as its passes read them, once they are checked.
#pragma once

#include <span>
#include <vector>

#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/attention/attention_mask.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

namespace qx::kernels {

// At most kAttentionQueryBlock queries that share a list.
struct QueryPiece {
  int64_t block = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Heads are counted through the batch: batch * heads + head. Refers to its arguments.
class BlockLists {
 public:
  BlockLists(const TensorView& query, const TensorView& key, const BlockSparseOptions& options);

  int64_t num_key_heads() const { return key_.size(0) * key_.size(1); }
  int64_t queries_per_key() const { return query_.size(1) / key_.size(1); }
  int64_t num_key_blocks() const { return static_cast<int64_t>(options_.key_starts.size()) - 1; }
  // Query blocks longer than the kernel takes are cut into pieces of about equal length.
  const std::vector<QueryPiece>& pieces() const { return pieces_; }
  // Each key block starts a panel of its own in a packed copy: the row of block i, and the number of rows.
  int64_t packed_start(int64_t block) const { return packed_starts_[static_cast<size_t>(block)]; }
  int64_t packed_rows() const { return packed_starts_.back(); }

  int64_t list_length(int64_t query_head, int64_t block) const;
  // The keys of a block that count: [first, last) without the padding of its batch item.
  KeySpan keys_of_block(int64_t batch, int64_t block) const;
  // The runs of keys in a list. Neighbours whose panels follow on each other without padding become one run: fewer
  // steps of the online softmax.
  void collect_spans(int64_t query_head, int64_t block, std::vector<KeySpan>& spans) const;
  // used[(head - first_key_head) * num_key_blocks + block]: a list of some query head names it.
  std::vector<uint8_t> used_blocks(int64_t first_key_head, int64_t count) const;

  // Rows of a head from the position first_row on, in the order of the options.
  StridedRows query_rows(const TensorView& view, int64_t query_head, int64_t first_row) const;
  StridedRows key_rows(const TensorView& view, int64_t key_head, int64_t first_row) const;
  // The mask of the options, which must have one, for the queries from the position first_row on.
  MaskRows rows_of_mask(int64_t query_head, int64_t first_row) const;
  // Query positions below this see the first key with causal, one more key each further position.
  int64_t causal_limit(int64_t first_row) const { return first_row + 1 + key_.size(2) - query_.size(2); }

 private:
  int64_t list_entry(int64_t query_head, int64_t block, int64_t index) const;

  const TensorView& query_;
  const TensorView& key_;
  const BlockSparseOptions& options_;
  std::vector<QueryPiece> pieces_;
  std::vector<int64_t> packed_starts_;
};

}  // namespace qx::kernels
