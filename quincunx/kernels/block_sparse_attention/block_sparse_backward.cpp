#include "quincunx/kernels/block_sparse_attention/block_sparse_backward.h"

#include <cmath>
#include <vector>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/attention/head_gradient.h"
#include "quincunx/kernels/block_sparse_attention/block_list_checks.h"
#include "quincunx/kernels/block_sparse_attention/block_lists.h"

namespace qx::kernels {
namespace {

// One call of block_sparse_attention_backward(), its arguments checked.
class Backward {
 public:
  Backward(const BlockSparseForward& forward, const BlockSparseOptions& options, const BlockSparseGradients& gradients,
           const BlockSparseInputGradients& result)
      : forward_(forward),
        options_(options),
        gradients_(gradients),
        result_(result),
        lists_(forward.query, forward.key, options),
        scale_(options.attention.scale.value_or(1 / std::sqrt(static_cast<float>(forward.query.size(3))))) {}

  Status run() const {
    return for_each_head_gradient(
        lists_.num_key_heads(), lists_.packed_rows(), forward_,
        [this](int64_t key_head, HeadGradient& gradient) { differentiate_head(key_head, gradient); });
  }

 private:
  void differentiate_head(int64_t key_head, HeadGradient& gradient) const {
    gradient.clear();
    add_keys(key_head, gradient);
    std::vector<KeySpan> spans;
    const int64_t group = lists_.queries_per_key();
    for (int64_t query_head = key_head * group; query_head < (key_head + 1) * group; ++query_head) {
      for (const QueryPiece& piece : lists_.pieces()) {
        lists_.collect_spans(query_head, piece.block, spans);
        GradientBlock block = block_of(query_head, piece);
        block.spans = spans;
        gradient.differentiate(block);
      }
    }
    for (int64_t block = 0; block < lists_.num_key_blocks(); ++block) {
      const int64_t first = options_.key_starts[static_cast<size_t>(block)];
      const int64_t count = options_.key_starts[static_cast<size_t>(block) + 1] - first;
      gradient.write_keys(lists_.packed_start(block), count, lists_.key_rows(result_.key, key_head, first),
                          lists_.key_rows(result_.value, key_head, first));
    }
  }

  void add_keys(int64_t key_head, HeadGradient& gradient) const {
    const std::vector<uint8_t> used = lists_.used_blocks(key_head, 1);
    for (int64_t block = 0; block < lists_.num_key_blocks(); ++block) {
      const KeySpan span = lists_.keys_of_block(key_head / forward_.key.size(1), block);
      if (used[static_cast<size_t>(block)] == 0 || span.count == 0) continue;
      gradient.add_keys(lists_.key_rows(forward_.key, key_head, span.first),
                        lists_.key_rows(forward_.value, key_head, span.first), span.count, span.packed);
    }
  }

  // The values of the query positions from first_row on of a [B, H, S] view.
  StridedScalars scalars(const TensorView& view, int64_t query_head, int64_t first_row) const {
    const int64_t batch = query_head / view.size(1), head = query_head % view.size(1);
    StridedScalars result{view.data_as<float>() + batch * view.stride(0) + head * view.stride(1), view.stride(2)};
    if (options_.query_order.empty()) {
      result.data += first_row * view.stride(2);
    } else {
      result.order = options_.query_order.data() + first_row;
    }
    return result;
  }

  GradientBlock block_of(int64_t query_head, const QueryPiece& piece) const {
    GradientBlock block;
    block.query = lists_.query_rows(forward_.query, query_head, piece.first);
    block.output = lists_.query_rows(forward_.output, query_head, piece.first);
    block.output_grad = lists_.query_rows(gradients_.output, query_head, piece.first);
    block.query_grad = lists_.query_rows(result_.query, query_head, piece.first);
    block.log_sum_exp = scalars(*options_.attention.log_sum_exp, query_head, piece.first);
    if (gradients_.log_sum_exp) {
      block.log_sum_exp_grad = scalars(*gradients_.log_sum_exp, query_head, piece.first);
    }
    block.num_rows = piece.count;
    block.causal = options_.attention.causal;
    block.causal_limit = lists_.causal_limit(piece.first);
    block.scale = scale_;
    if (options_.attention.attn_mask) block.mask = lists_.rows_of_mask(query_head, piece.first);
    return block;
  }

  const BlockSparseForward& forward_;
  const BlockSparseOptions& options_;
  const BlockSparseGradients& gradients_;
  const BlockSparseInputGradients& result_;
  BlockLists lists_;
  float scale_;
};

}  // namespace

Status block_sparse_attention_backward(const BlockSparseForward& forward, const BlockSparseOptions& options,
                                       const BlockSparseGradients& gradients, const BlockSparseInputGradients& result) {
  QX_RETURN_IF_ERROR(
      check_attention_arguments(forward.query, forward.key, forward.value, options.attention, forward.output));
  QX_RETURN_IF_ERROR(check_block_lists(forward.query, forward.key, options));
  QX_RETURN_IF_ERROR(check_attention_gradients(forward, options.attention.log_sum_exp, gradients, result));
  if (forward.output.num_elements() == 0) {
    fill_attention_gradients_with_zeros(result);
    return ok_status();
  }
  return Backward(forward, options, gradients, result).run();
}

}  // namespace qx::kernels
