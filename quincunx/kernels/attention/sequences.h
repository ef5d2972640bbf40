// The sequences of a call of attention: the items of a batch, or the parts of one packed tensor.
#pragma once

#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/kernels/attention/attention.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

struct Sequence {
  int64_t batch = 0;
  int64_t first_query = 0;
  int64_t num_queries = 0;
  int64_t first_key = 0;
  int64_t num_keys = 0;     // without padding
  int64_t num_padding = 0;  // rows after the keys that belong to no sequence
  int64_t diagonal = 0;     // keys that the first query sees with causal; the next one sees one more

  int64_t causal_limit(int64_t query) const { return diagonal + query; }
};

// Tensors [B, H, S, D]; the lengths are empty or one a batch item.
std::vector<Sequence> sequences_of_batch(const TensorView& query, const TensorView& key,
                                         std::span<const int64_t> key_lengths);
// Sequence i has the rows [starts[i], starts[i + 1]).
std::vector<Sequence> sequences_of_starts(std::span<const int64_t> query_starts, std::span<const int64_t> key_starts);
// Both of one length, rising from 0 to the length (dimension 2) of their tensors.
Status check_sequence_starts(std::span<const int64_t> query_starts, std::span<const int64_t> key_starts,
                             const TensorView& query, const TensorView& key);

// As attention() takes them, for tensors that are seen by heads.
Result<AttentionOptions> packed_attention_options(const VariableLengthOptions& options);
// A [S, H, D] tensor as [1, H, S, D], and a [H, S] tensor as [1, H, S].
TensorView by_heads(const TensorView& tensor);
TensorView with_one_batch_item(const TensorView& tensor);

}  // namespace qx::kernels
