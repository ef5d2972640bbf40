#include "quincunx/kernels/attention/attention.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/attention/packed_heads.h"
#include "quincunx/kernels/attention/sequences.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Keys that a packing task handles at least.
constexpr int64_t kPackKeys = 256;

// One call: where each head's packed copy lies, and which block of queries is which task.
class Attention {
 public:
  Attention(const TensorView& query, const TensorView& key, const TensorView& value, const AttentionOptions& options,
            const TensorView& output, const std::vector<Sequence>& sequences)
      : query_(query),
        key_(key),
        value_(value),
        options_(options),
        output_(output),
        sequences_(sequences),
        scale_(options.scale.value_or(1 / std::sqrt(static_cast<float>(query.size(3))))) {
    int64_t most_keys = 0, most_queries = 0;
    for (const Sequence& s : sequences) {
      most_keys = std::max(most_keys, s.num_keys);
      most_queries = std::max(most_queries, s.num_queries);
    }
    head_ = {round_up_to_panel(most_keys), query.size(3), value.size(3)};
    query_blocks_ = (most_queries + kAttentionQueryBlock - 1) / kAttentionQueryBlock;
  }

  // The key/value heads of all sequences, a group at a time.
  Status run() {
    const int64_t num_heads = static_cast<int64_t>(sequences_.size()) * key_.size(1);
    return for_packed_heads(key_, value_, num_heads, head_.floats(),
                            [this](int64_t first, int64_t count, float* packed) {
                              pack(first, count, packed);
                              attend(first, count, packed);
                            });
  }

 private:
  const Sequence& sequence(int64_t index) const { return sequences_[static_cast<size_t>(index)]; }

  void pack(int64_t first_head, int64_t count, float* packed) const {
    const int64_t pieces = (head_.rows + kPackKeys - 1) / kPackKeys;
    parallel_for(0, count * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t head = (first_head + task / pieces) % key_.size(1);
        const Sequence& s = sequence((first_head + task / pieces) / key_.size(1));
        const int64_t first = task % pieces * kPackKeys;
        const int64_t length = std::min(kPackKeys, s.num_keys - first);
        if (length <= 0) continue;
        head_.pack(head_rows(key_, s.batch, head, s.first_key + first),
                   head_rows(value_, s.batch, head, s.first_key + first), length, first,
                   packed + task / pieces * head_.floats());
      }
    });
  }

  void attend(int64_t first_head, int64_t count, const float* packed) const {
    const int64_t queries_per_key = query_.size(1) / key_.size(1);
    parallel_for(0, count * queries_per_key * query_blocks_, 1, [&](int64_t begin, int64_t end) {
      const auto workspace =
          hwy::AllocateAligned<float>(static_cast<size_t>(attention_workspace_floats(query_.size(3), value_.size(3))));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t query_head = first_head * queries_per_key + task / query_blocks_;
        const Sequence& s = sequence(query_head / query_.size(1));
        const int64_t blocks = (s.num_queries + kAttentionQueryBlock - 1) / kAttentionQueryBlock;
        if (task % query_blocks_ >= blocks) continue;
        const float* keys = packed + (query_head / queries_per_key - first_head) * head_.floats();
        const KeySpan all_keys[] = {{.count = s.num_keys}};
        AttentionBlock block = head_.block(keys);
        block.spans = all_keys;
        place(s, query_head % query_.size(1), balanced(task % query_blocks_, blocks) * kAttentionQueryBlock, block);
        attend_block(block, workspace.get());
      }
    });
  }

  // Causal blocks grow with their index: taking them from both ends makes every run of tasks about equally long.
  int64_t balanced(int64_t block, int64_t blocks) const {
    if (!options_.causal) return block;
    return block % 2 == 0 ? block / 2 : blocks - 1 - block / 2;
  }

  // The queries of the sequence from first_row on.
  void place(const Sequence& s, int64_t head, int64_t first_row, AttentionBlock& block) const {
    block.query = head_rows(query_, s.batch, head, s.first_query + first_row);
    block.output = head_rows(output_, s.batch, head, s.first_query + first_row);
    if (options_.log_sum_exp) {
      const TensorView& lse = *options_.log_sum_exp;
      block.log_sum_exp = lse.data_as<float>() + s.batch * lse.stride(0) + head * lse.stride(1) +
                          (s.first_query + first_row) * lse.stride(2);
      block.log_sum_exp_stride = lse.stride(2);
    }
    block.num_rows = std::min(kAttentionQueryBlock, s.num_queries - first_row);
    block.causal = options_.causal;
    block.causal_limit = s.causal_limit(first_row);
    block.scale = scale_;
    if (options_.attn_mask) block.mask = mask_rows(*options_.attn_mask, s.batch, head, first_row);
  }

  const TensorView& query_;
  const TensorView& key_;
  const TensorView& value_;
  const AttentionOptions& options_;
  const TensorView& output_;
  const std::vector<Sequence>& sequences_;
  float scale_;
  PackedHead head_;
  int64_t query_blocks_ = 0;
};

}  // namespace

Status attention(const TensorView& query, const TensorView& key, const TensorView& value,
                 const AttentionOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_attention_arguments(query, key, value, options, output));
  if (output.num_elements() == 0) return ok_status();
  return Attention(query, key, value, options, output, sequences_of_batch(query, key, options.key_lengths)).run();
}

Status variable_length_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                                 const VariableLengthOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_attention_dtypes(query, key, value, output, 3));
  QX_ASSIGN_OR_RETURN(const AttentionOptions inner, packed_attention_options(options));
  const TensorView q = by_heads(query), k = by_heads(key), v = by_heads(value), out = by_heads(output);
  QX_RETURN_IF_ERROR(check_attention_arguments(q, k, v, inner, out));
  QX_RETURN_IF_ERROR(check_sequence_starts(options.query_starts, options.key_starts, q, k));
  if (output.num_elements() == 0) return ok_status();
  return Attention(q, k, v, inner, out, sequences_of_starts(options.query_starts, options.key_starts)).run();
}

}  // namespace qx::kernels
