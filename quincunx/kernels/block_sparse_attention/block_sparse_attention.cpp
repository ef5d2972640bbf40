#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/kernels/block_sparse_attention/block_list_checks.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Rows of a register tile: pieces of a query block end at multiples of it.
constexpr int64_t kRowsOfTile = 6;

// At most kAttentionQueryBlock queries that share a list.
struct QueryPiece {
  int64_t block = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Blocks longer than the kernel takes are cut into pieces of about equal length.
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

// Each key block starts a panel of its own: the row of the packed copy at which block i lies, and the number of rows.
std::vector<int64_t> packed_starts_of(std::span<const int64_t> starts) {
  std::vector<int64_t> packed(starts.size());
  for (size_t i = 1; i < starts.size(); ++i) {
    packed[i] = packed[i - 1] + round_up_to_panel(starts[i] - starts[i - 1]);
  }
  return packed;
}

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
        pieces_(pieces_of(options.query_starts)),
        packed_starts_(packed_starts_of(options.key_starts)),
        num_key_blocks_(static_cast<int64_t>(options.key_starts.size()) - 1),
        keys_floats_(packed_starts_.back() * query.size(3)),
        head_floats_(keys_floats_ + packed_starts_.back() * round_up_to_panel(value.size(3))) {}

  // The key/value heads of all batch items, a group at a time.
  Status run() {
    const int64_t num_heads = key_.size(0) * key_.size(1);
    const int64_t fit = head_floats_ == 0 ? num_heads : kMaxPackedAttentionBytes / 4 / head_floats_;
    const int64_t group = std::clamp<int64_t>(fit, 1, num_heads);
    const auto packed = hwy::AllocateAligned<float>(static_cast<size_t>(std::max<int64_t>(group * head_floats_, 1)));
    if (packed == nullptr) {
      return resource_exhausted("key: no memory for a packed copy of " + std::to_string(group) + " heads of key " +
                                key_.to_string() + " and value " + value_.to_string());
    }
    for (int64_t first = 0; first < num_heads; first += group) {
      const int64_t count = std::min(group, num_heads - first);
      pack(first, count, packed.get());
      attend(first, count, packed.get());
    }
    return ok_status();
  }

 private:
  int64_t num_keys(int64_t batch) const {
    const auto lengths = options_.attention.key_lengths;
    return lengths.empty() ? key_.size(2) : lengths[static_cast<size_t>(batch)];
  }
  int64_t queries_per_key() const { return query_.size(1) / key_.size(1); }

  int64_t list_length(int64_t query_head, int64_t block) const {
    const TensorView& num = options_.select_num_idx;
    return num.data_as<int64_t>()[query_head / query_.size(1) * num.stride(0) +
                                  query_head % query_.size(1) * num.stride(1) + block * num.stride(2)];
  }
  int64_t list_entry(int64_t query_head, int64_t block, int64_t index) const {
    const TensorView& idx = options_.select_idx;
    return idx
        .data_as<int64_t>()[query_head / query_.size(1) * idx.stride(0) + query_head % query_.size(1) * idx.stride(1) +
                            block * idx.stride(2) + index * idx.stride(3)];
  }

  static StridedRows ordered_rows(const TensorView& view, int64_t batch, int64_t head, int64_t first_row,
                                  std::span<const int64_t> order) {
    if (order.empty()) return head_rows(view, batch, head, first_row);
    StridedRows rows = head_rows(view, batch, head);
    rows.order = order.data() + first_row;
    return rows;
  }

  // used[head * num_key_blocks + block]: some list of the group's query heads names it.
  std::vector<uint8_t> used_blocks(int64_t first_head, int64_t count) const {
    std::vector<uint8_t> used(static_cast<size_t>(count * num_key_blocks_));
    const auto num_query_blocks = static_cast<int64_t>(options_.query_starts.size()) - 1;
    for (int64_t query_head = first_head * queries_per_key(); query_head < (first_head + count) * queries_per_key();
         ++query_head) {
      const int64_t row = (query_head / queries_per_key() - first_head) * num_key_blocks_;
      for (int64_t block = 0; block < num_query_blocks; ++block) {
        const int64_t length = list_length(query_head, block);
        for (int64_t i = 0; i < length; ++i) used[static_cast<size_t>(row + list_entry(query_head, block, i))] = 1;
      }
    }
    return used;
  }

  void pack(int64_t first_head, int64_t count, float* packed) const {
    const std::vector<uint8_t> used = used_blocks(first_head, count);
    parallel_for(0, count * num_key_blocks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        if (used[static_cast<size_t>(task)] == 0) continue;
        pack_block(first_head + task / num_key_blocks_, task % num_key_blocks_,
                   packed + task / num_key_blocks_ * head_floats_);
      }
    });
  }

  void pack_block(int64_t key_head, int64_t block, float* packed) const {
    const int64_t batch = key_head / key_.size(1), head = key_head % key_.size(1);
    const int64_t first = options_.key_starts[static_cast<size_t>(block)];
    const int64_t last = std::min(options_.key_starts[static_cast<size_t>(block) + 1], num_keys(batch));
    if (last <= first) return;
    const int64_t packed_row = packed_starts_[static_cast<size_t>(block)];
    pack_attention_keys(ordered_rows(key_, batch, head, first, options_.key_order), key_.size(3), 0, last - first,
                        packed + packed_row * key_.size(3));
    pack_attention_values(ordered_rows(value_, batch, head, first, options_.key_order), value_.size(3), 0, last - first,
                          packed_starts_.back(), packed + keys_floats_ + packed_row * kAttentionPanel);
  }

  // (query head, piece): the heads one after another, because a head's queries share its packed keys in the cache, and
  // within each the longest lists first, so that no long task is left for the end.
  std::vector<int64_t> tasks_of(int64_t first_head, int64_t count) const {
    const auto num_pieces = static_cast<int64_t>(pieces_.size());
    std::vector<int64_t> tasks(static_cast<size_t>(count * queries_per_key() * num_pieces));
    std::iota(tasks.begin(), tasks.end(), first_head * queries_per_key() * num_pieces);
    const auto cost = [&](int64_t task) {
      const QueryPiece& piece = pieces_[static_cast<size_t>(task % num_pieces)];
      return list_length(task / num_pieces, piece.block) * piece.count;
    };
    std::sort(tasks.begin(), tasks.end(), [&](int64_t a, int64_t b) {
      return std::tuple(a / num_pieces, -cost(a), a) < std::tuple(b / num_pieces, -cost(b), b);
    });
    return tasks;
  }

  void attend(int64_t first_head, int64_t count, const float* packed) const {
    const std::vector<int64_t> tasks = tasks_of(first_head, count);
    const auto num_pieces = static_cast<int64_t>(pieces_.size());
    parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t end) {
      const auto workspace =
          hwy::AllocateAligned<float>(static_cast<size_t>(attention_workspace_floats(query_.size(3), value_.size(3))));
      std::vector<KeySpan> spans;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t task = tasks[static_cast<size_t>(i)];
        const int64_t query_head = task / num_pieces;
        const QueryPiece& piece = pieces_[static_cast<size_t>(task % num_pieces)];
        collect_spans(query_head, piece.block, spans);
        const float* keys = packed + (query_head / queries_per_key() - first_head) * head_floats_;
        attend_block(block_of(query_head, piece, keys, spans), workspace.get());
      }
    });
  }

  // Neighbours whose panels follow on each other without padding become one run: fewer steps of the online softmax.
  void collect_spans(int64_t query_head, int64_t block, std::vector<KeySpan>& spans) const {
    spans.clear();
    const int64_t end_of_keys = num_keys(query_head / query_.size(1));
    const int64_t length = list_length(query_head, block);
    for (int64_t i = 0; i < length; ++i) {
      const auto index = static_cast<size_t>(list_entry(query_head, block, i));
      const int64_t first = options_.key_starts[index];
      const int64_t last = std::min(options_.key_starts[index + 1], end_of_keys);
      if (last <= first) break;
      const int64_t packed = packed_starts_[index];
      if (!spans.empty() && spans.back().packed + spans.back().count == packed) {
        spans.back().count += last - first;
      } else {
        spans.push_back({packed, first, last - first});
      }
    }
  }

  AttentionBlock block_of(int64_t query_head, const QueryPiece& piece, const float* keys,
                          std::span<const KeySpan> spans) const {
    const int64_t batch = query_head / query_.size(1), head = query_head % query_.size(1);
    AttentionBlock block;
    block.query = ordered_rows(query_, batch, head, piece.first, options_.query_order);
    block.output = ordered_rows(output_, batch, head, piece.first, options_.query_order);
    if (options_.attention.log_sum_exp) {
      const TensorView& lse = *options_.attention.log_sum_exp;
      const int64_t first_row = options_.query_order.empty() ? piece.first : 0;
      block.log_sum_exp =
          lse.data_as<float>() + batch * lse.stride(0) + head * lse.stride(1) + first_row * lse.stride(2);
      block.log_sum_exp_stride = lse.stride(2);
    }
    block.packed_keys = keys;
    block.packed_values = keys + keys_floats_;
    block.padded_keys = packed_starts_.back();
    block.head_dim = query_.size(3);
    block.value_dim = value_.size(3);
    block.num_rows = piece.count;
    block.spans = spans;
    block.causal = options_.attention.causal;
    block.causal_limit = piece.first + 1 + key_.size(2) - query_.size(2);
    block.scale = scale_;
    return block;
  }

  const TensorView& query_;
  const TensorView& key_;
  const TensorView& value_;
  const BlockSparseOptions& options_;
  const TensorView& output_;
  float scale_;
  std::vector<QueryPiece> pieces_;
  std::vector<int64_t> packed_starts_;
  int64_t num_key_blocks_;
  int64_t keys_floats_;
  int64_t head_floats_;
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
