#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/attention/packed_heads.h"
#include "quincunx/kernels/block_sparse_attention/block_list_checks.h"
#include "quincunx/kernels/block_sparse_attention/block_lists.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// One call of block_sparse_attention(), its arguments checked.
class BlockSparseAttention {
 public:
  BlockSparseAttention(const TensorView& query, const TensorView& key, const TensorView& value,
                       const BlockSparseOptions& options, const TensorView& output)
      : query_(query),
        key_(key),
        value_(value),
        options_(options),
        output_(output),
        scale_(options.attention.scale.value_or(1 / std::sqrt(static_cast<float>(query.size(3))))),
        lists_(query, key, options),
        head_{lists_.packed_rows(), query.size(3), value.size(3)} {}

  // The key/value heads of all batch items, a group at a time.
  Status run() {
    return for_packed_heads(key_, value_, key_.size(0) * key_.size(1), head_.floats(),
                            [this](int64_t first, int64_t count, float* packed) {
                              pack(first, count, packed);
                              attend(first, count, packed);
                            });
  }

 private:
  void pack(int64_t first_head, int64_t count, float* packed) const {
    const std::vector<uint8_t> used = lists_.used_blocks(first_head, count);
    const int64_t blocks = lists_.num_key_blocks();
    parallel_for(0, count * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        if (used[static_cast<size_t>(task)] == 0) continue;
        pack_block(first_head + task / blocks, task % blocks, packed + task / blocks * head_.floats());
      }
    });
  }

  void pack_block(int64_t key_head, int64_t block, float* packed) const {
    const KeySpan keys = lists_.keys_of_block(key_head / key_.size(1), block);
    if (keys.count == 0) return;
    head_.pack(lists_.key_rows(key_, key_head, keys.first), lists_.key_rows(value_, key_head, keys.first), keys.count,
               keys.packed, packed);
  }

  // (query head, piece): the heads one after another, because a head's queries share its packed keys in the cache, and
  // within each the longest lists first, so that no long task is left for the end.
  std::vector<int64_t> tasks_of(int64_t first_head, int64_t count) const {
    const auto num_pieces = static_cast<int64_t>(lists_.pieces().size());
    std::vector<int64_t> tasks(static_cast<size_t>(count * lists_.queries_per_key() * num_pieces));
    std::iota(tasks.begin(), tasks.end(), first_head * lists_.queries_per_key() * num_pieces);
    const auto cost = [&](int64_t task) {
      const QueryPiece& piece = lists_.pieces()[static_cast<size_t>(task % num_pieces)];
      return lists_.list_length(task / num_pieces, piece.block) * piece.count;
    };
    std::sort(tasks.begin(), tasks.end(), [&](int64_t a, int64_t b) {
      return std::tuple(a / num_pieces, -cost(a), a) < std::tuple(b / num_pieces, -cost(b), b);
    });
    return tasks;
  }

  void attend(int64_t first_head, int64_t count, const float* packed) const {
    const std::vector<int64_t> tasks = tasks_of(first_head, count);
    const auto num_pieces = static_cast<int64_t>(lists_.pieces().size());
    parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t end) {
      const auto workspace =
          hwy::AllocateAligned<float>(static_cast<size_t>(attention_workspace_floats(query_.size(3), value_.size(3))));
      std::vector<KeySpan> spans;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t task = tasks[static_cast<size_t>(i)];
        const int64_t query_head = task / num_pieces;
        const QueryPiece& piece = lists_.pieces()[static_cast<size_t>(task % num_pieces)];
        lists_.collect_spans(query_head, piece.block, spans);
        const float* keys = packed + (query_head / lists_.queries_per_key() - first_head) * head_.floats();
        attend_block(block_of(query_head, piece, keys, spans), workspace.get());
      }
    });
  }

  AttentionBlock block_of(int64_t query_head, const QueryPiece& piece, const float* keys,
                          std::span<const KeySpan> spans) const {
    const int64_t batch = query_head / query_.size(1), head = query_head % query_.size(1);
    AttentionBlock block = head_.block(keys);
    block.query = lists_.query_rows(query_, query_head, piece.first);
    block.output = lists_.query_rows(output_, query_head, piece.first);
    if (options_.attention.log_sum_exp) {
      const TensorView& lse = *options_.attention.log_sum_exp;
      const int64_t first_row = options_.query_order.empty() ? piece.first : 0;
      block.log_sum_exp =
          lse.data_as<float>() + batch * lse.stride(0) + head * lse.stride(1) + first_row * lse.stride(2);
      block.log_sum_exp_stride = lse.stride(2);
    }
    block.num_rows = piece.count;
    block.spans = spans;
    block.causal = options_.attention.causal;
    block.causal_limit = lists_.causal_limit(piece.first);
    block.scale = scale_;
    if (options_.attention.attn_mask) block.mask = lists_.rows_of_mask(query_head, piece.first);
    return block;
  }

  const TensorView& query_;
  const TensorView& key_;
  const TensorView& value_;
  const BlockSparseOptions& options_;
  const TensorView& output_;
  float scale_;
  BlockLists lists_;
  PackedHead head_;
};

}  // namespace

std::vector<int64_t> uniform_block_starts(int64_t length, int64_t block) {
  std::vector<int64_t> starts{0};
  while (starts.back() < length) starts.push_back(std::min(length, starts.back() + block));
  return starts;
}

Status block_sparse_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                              const BlockSparseOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_attention_arguments(query, key, value, options.attention, output));
  QX_RETURN_IF_ERROR(check_block_lists(query, key, options));
  if (output.num_elements() == 0) return ok_status();
  return BlockSparseAttention(query, key, value, options, output).run();
}

}  // namespace qx::kernels
