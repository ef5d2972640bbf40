#include "quincunx/kernels/attention/attention.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/attention/packed_heads.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Keys that a packing task handles at least.
constexpr int64_t kPackKeys = 256;

// One call of attention(): where each head's packed copy lies, and which block of queries is which task.
class Attention {
 public:
  Attention(const TensorView& query, const TensorView& key, const TensorView& value, const AttentionOptions& options,
            const TensorView& output)
      : query_(query),
        key_(key),
        value_(value),
        options_(options),
        output_(output),
        scale_(options.scale.value_or(1 / std::sqrt(static_cast<float>(query.size(3))))),
        padded_keys_(round_up_to_panel(key.size(2))),
        keys_floats_(padded_keys_ * query.size(3)),
        head_floats_(keys_floats_ + padded_keys_ * round_up_to_panel(value.size(3))),
        query_blocks_((query.size(2) + kAttentionQueryBlock - 1) / kAttentionQueryBlock) {}

  // The key/value heads of all batch items, a group at a time.
  Status run() {
    return for_packed_heads(key_, value_, head_floats_, [this](int64_t first, int64_t count, float* packed) {
      pack(first, count, packed);
      attend(first, count, packed);
    });
  }

 private:
  int64_t num_keys(int64_t batch) const {
    return options_.key_lengths.empty() ? key_.size(2) : options_.key_lengths[static_cast<size_t>(batch)];
  }

  void pack(int64_t first_head, int64_t count, float* packed) const {
    const int64_t pieces = (key_.size(2) + kPackKeys - 1) / kPackKeys;
    parallel_for(0, count * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t head = first_head + task / pieces;
        const int64_t batch = head / key_.size(1);
        const int64_t first = task % pieces * kPackKeys;
        const int64_t length = std::min(kPackKeys, num_keys(batch) - first);
        if (length <= 0) continue;
        float* keys = packed + task / pieces * head_floats_;
        pack_attention_keys(head_rows(key_, batch, head % key_.size(1)), key_.size(3), first, length, keys);
        pack_attention_values(head_rows(value_, batch, head % key_.size(1)), value_.size(3), first, length,
                              padded_keys_, keys + keys_floats_);
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
        const float* keys = packed + (query_head / queries_per_key - first_head) * head_floats_;
        const KeySpan all_keys[] = {{.count = num_keys(query_head / query_.size(1))}};
        attend_block(block_of(query_head, balanced(task % query_blocks_), keys, all_keys), workspace.get());
      }
    });
  }

  // Causal blocks grow with their index: taking them from both ends makes every run of tasks about equally long.
  int64_t balanced(int64_t block) const {
    if (!options_.causal) return block;
    return block % 2 == 0 ? block / 2 : query_blocks_ - 1 - block / 2;
  }

  // `all_keys` is what the block's spans point to.
  AttentionBlock block_of(int64_t query_head, int64_t index, const float* keys,
                          std::span<const KeySpan> all_keys) const {
    const int64_t batch = query_head / query_.size(1);
    const int64_t head = query_head % query_.size(1);
    const int64_t first_row = index * kAttentionQueryBlock;
    AttentionBlock block;
    block.query = head_rows(query_, batch, head, first_row);
    block.output = head_rows(output_, batch, head, first_row);
    if (options_.log_sum_exp) {
      const TensorView& lse = *options_.log_sum_exp;
      block.log_sum_exp =
          lse.data_as<float>() + batch * lse.stride(0) + head * lse.stride(1) + first_row * lse.stride(2);
      block.log_sum_exp_stride = lse.stride(2);
    }
    block.packed_keys = keys;
    block.packed_values = keys + keys_floats_;
    block.padded_keys = padded_keys_;
    block.head_dim = query_.size(3);
    block.value_dim = value_.size(3);
    block.num_rows = std::min(kAttentionQueryBlock, query_.size(2) - first_row);
    block.spans = all_keys;
    block.causal = options_.causal;
    block.causal_limit = first_row + 1 + key_.size(2) - query_.size(2);
    block.scale = scale_;
    if (options_.attn_mask) block.mask = mask_rows(*options_.attn_mask, batch, head, first_row);
    return block;
  }

  const TensorView& query_;
  const TensorView& key_;
  const TensorView& value_;
  const AttentionOptions& options_;
  const TensorView& output_;
  float scale_;
  int64_t padded_keys_;
  int64_t keys_floats_;
  int64_t head_floats_;
  int64_t query_blocks_;
};

}  // namespace

Status attention(const TensorView& query, const TensorView& key, const TensorView& value,
                 const AttentionOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_attention_arguments(query, key, value, options, output));
  if (output.num_elements() == 0) return ok_status();
  return Attention(query, key, value, options, output).run();
}

}  // namespace qx::kernels
