#include "quincunx/kernels/block_sparse_attention/block_sparse_backward.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/block_sparse_attention/block_list_checks.h"
#include "quincunx/kernels/block_sparse_attention/block_lists.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_backward_kernel.h"
#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Rows of the transposed weights: a query block and a panel, not a power of two.
constexpr int64_t kTransposedStride = kAttentionQueryBlock + kAttentionPanel;
constexpr int64_t kWeightStride = kAttentionKeyBlock + kAttentionPanel;

Status check_arguments(const BlockSparseForward& forward, const BlockSparseOptions& options,
                       const BlockSparseGradients& gradients, const BlockSparseInputGradients& result) {
  QX_RETURN_IF_ERROR(
      check_attention_arguments(forward.query, forward.key, forward.value, options.attention, forward.output));
  QX_RETURN_IF_ERROR(check_block_lists(forward.query, forward.key, options));
  if (!options.attention.log_sum_exp) {
    return invalid_argument("log_sum_exp: expected that of the forward pass, got none");
  }
  const auto check_like = [](std::string_view name, const TensorView& view, std::string_view other_name,
                             const TensorView& other) {
    QX_RETURN_IF_ERROR(check_kernel_float(name, view));
    QX_RETURN_IF_ERROR(check_same_dtype(name, view, other_name, other));
    return check_same_shape(name, view, other_name, other);
  };
  QX_RETURN_IF_ERROR(check_like("output_grad", gradients.output, "output", forward.output));
  if (gradients.log_sum_exp) {
    QX_RETURN_IF_ERROR(
        check_like("log_sum_exp_grad", *gradients.log_sum_exp, "log_sum_exp", *options.attention.log_sum_exp));
  }
  QX_RETURN_IF_ERROR(check_like("query_grad", result.query, "query", forward.query));
  QX_RETURN_IF_ERROR(check_like("key_grad", result.key, "key", forward.key));
  QX_RETURN_IF_ERROR(check_like("value_grad", result.value, "value", forward.value));
  QX_RETURN_IF_ERROR(check_output("query_grad", result.query, {}));
  QX_RETURN_IF_ERROR(check_output("key_grad", result.key, {}));
  return check_output("value_grad", result.value, {});
}

void copy_rows(const StridedRows& source, int64_t count, int64_t width, float* out) {
  for (int64_t row = 0; row < count; ++row) {
    load_row_as_f32(source.dtype, source.row(row), source.column_stride, width, out + row * width);
  }
}

void write_rows(const float* source, int64_t stride, int64_t count, int64_t width, const StridedRows& out) {
  for (int64_t row = 0; row < count; ++row) out.store(source + row * stride, width, row);
}

void transpose(const float* source, int64_t stride, int64_t rows, int64_t columns, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) out[i * kTransposedStride + row] = source[row * stride + i];
  }
}

// What one thread works with, cut from one allocation.
struct Workspace {
  // Of a key head, [packed rows] long.
  float *keys, *values, *key_rows, *key_grads, *value_grads;
  // Of a piece of queries.
  float *query, *output_grad, *query_panels, *output_grad_panels, *query_grad;
  float *weights, *weight_grads, *transposed_weights, *transposed_grads, *bias;
  hwy::AlignedFreeUniquePtr<float[]> memory;

  Workspace(int64_t packed_rows, int64_t head_dim, int64_t value_dim) {
    const int64_t d = round_up_to_panel(head_dim), dv = round_up_to_panel(value_dim);
    const std::pair<float**, int64_t> parts[] = {{&keys, packed_rows * d},
                                                 {&values, packed_rows * dv},
                                                 {&key_rows, packed_rows * d},
                                                 {&key_grads, packed_rows * d},
                                                 {&value_grads, packed_rows * dv},
                                                 {&query, kAttentionQueryBlock * d},
                                                 {&output_grad, kAttentionQueryBlock * dv},
                                                 {&query_panels, kAttentionQueryBlock * d},
                                                 {&output_grad_panels, kAttentionQueryBlock * dv},
                                                 {&query_grad, kAttentionQueryBlock * d},
                                                 {&weights, kAttentionQueryBlock * kWeightStride},
                                                 {&weight_grads, kAttentionQueryBlock * kWeightStride},
                                                 {&transposed_weights, kAttentionKeyBlock * kTransposedStride},
                                                 {&transposed_grads, kAttentionKeyBlock * kTransposedStride},
                                                 {&bias, kWeightStride}};
    int64_t total = 0;
    for (const auto& part : parts) total += part.second;
    memory = hwy::AllocateAligned<float>(static_cast<size_t>(total));
    float* next = memory.get();
    for (const auto& part : parts) {
      *part.first = next;
      if (next != nullptr) next += part.second;
    }
  }
};

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
        head_dim_(forward.query.size(3)),
        value_dim_(forward.value.size(3)),
        scale_(options.attention.scale.value_or(1 / std::sqrt(static_cast<float>(head_dim_)))) {}

  Status run() const {
    std::atomic<bool> has_memory = true;
    parallel_for(0, lists_.num_key_heads(), 1, [&](int64_t begin, int64_t end) {
      const Workspace work(lists_.packed_rows(), head_dim_, value_dim_);
      if (work.memory == nullptr) {
        has_memory = false;
        return;
      }
      for (int64_t head = begin; head < end; ++head) differentiate_head(head, work);
    });
    if (has_memory) return ok_status();
    return resource_exhausted("key: no memory for the packed copy and gradients of a head of key " +
                              forward_.key.to_string());
  }

 private:
  int64_t padded_head_dim() const { return round_up_to_panel(head_dim_); }
  int64_t padded_value_dim() const { return round_up_to_panel(value_dim_); }

  void differentiate_head(int64_t key_head, const Workspace& work) const {
    pack(key_head, work);
    std::fill_n(work.key_grads, lists_.packed_rows() * padded_head_dim(), 0.0f);
    std::fill_n(work.value_grads, lists_.packed_rows() * padded_value_dim(), 0.0f);
    std::vector<KeySpan> spans;
    const int64_t group = lists_.queries_per_key();
    for (int64_t query_head = key_head * group; query_head < (key_head + 1) * group; ++query_head) {
      for (const QueryPiece& piece : lists_.pieces()) {
        lists_.collect_spans(query_head, piece.block, spans);
        differentiate_piece(query_head, piece, spans, work);
      }
    }
    for (int64_t block = 0; block < lists_.num_key_blocks(); ++block) {
      const int64_t first = options_.key_starts[static_cast<size_t>(block)], packed = lists_.packed_start(block);
      const int64_t count = options_.key_starts[static_cast<size_t>(block) + 1] - first;
      write_rows(work.key_grads + packed * padded_head_dim(), padded_head_dim(), count, head_dim_,
                 lists_.key_rows(result_.key, key_head, first));
      write_rows(work.value_grads + packed * padded_value_dim(), padded_value_dim(), count, value_dim_,
                 lists_.key_rows(result_.value, key_head, first));
    }
  }

  void pack(int64_t key_head, const Workspace& work) const {
    const std::vector<uint8_t> used = lists_.used_blocks(key_head, 1);
    for (int64_t block = 0; block < lists_.num_key_blocks(); ++block) {
      const KeySpan span = lists_.keys_of_block(key_head / forward_.key.size(1), block);
      if (used[static_cast<size_t>(block)] == 0 || span.count == 0) continue;
      const StridedRows keys = lists_.key_rows(forward_.key, key_head, span.first);
      pack_attention_keys(keys, head_dim_, span.count, span.packed, work.keys);
      pack_attention_values(keys, head_dim_, span.count, span.packed, lists_.packed_rows(), work.key_rows);
      pack_attention_keys(lists_.key_rows(forward_.value, key_head, span.first), value_dim_, span.count, span.packed,
                          work.values);
    }
  }

  // The value of query position `row` of a [B, H, S] view.
  float scalar_at(const TensorView& view, int64_t query_head, int64_t position) const {
    const int64_t row = options_.query_order.empty() ? position : options_.query_order[static_cast<size_t>(position)];
    const int64_t batch = query_head / view.size(1), head = query_head % view.size(1);
    return view.data_as<float>()[batch * view.stride(0) + head * view.stride(1) + row * view.stride(2)];
  }

  void differentiate_piece(int64_t query_head, const QueryPiece& piece, std::span<const KeySpan> spans,
                           const Workspace& work) const {
    const StridedRows query = lists_.query_rows(forward_.query, query_head, piece.first);
    const StridedRows output_grad = lists_.query_rows(gradients_.output, query_head, piece.first);
    copy_rows(query, piece.count, head_dim_, work.query);
    copy_rows(output_grad, piece.count, value_dim_, work.output_grad);
    pack_attention_values(query, head_dim_, piece.count, 0, kAttentionQueryBlock, work.query_panels);
    pack_attention_values(output_grad, value_dim_, piece.count, 0, kAttentionQueryBlock, work.output_grad_panels);
    std::fill_n(work.query_grad, piece.count * padded_head_dim(), 0.0f);
    std::vector<WeightRow> rows = weight_rows(query_head, piece, work);
    MaskRows mask;
    if (options_.attention.attn_mask) mask = lists_.rows_of_mask(query_head, piece.first);
    for (const KeySpan& span : spans) {
      for (int64_t key = 0; key < span.count; key += kAttentionKeyBlock) {
        const KeySpan part{span.packed + key, span.first + key, std::min(kAttentionKeyBlock, span.count - key)};
        if (mask.is_present() && !sees_any(mask, piece.count, part.first, part.count)) continue;
        differentiate_span(piece, part, mask, rows, work);
      }
    }
    write_rows(work.query_grad, padded_head_dim(), piece.count, head_dim_,
               lists_.query_rows(result_.query, query_head, piece.first));
  }

  // delta = output gradient . output - gradient of the log-sum-exp: what softmax subtracts from a weight's gradient.
  std::vector<WeightRow> weight_rows(int64_t query_head, const QueryPiece& piece, const Workspace& work) const {
    std::vector<WeightRow> rows(static_cast<size_t>(piece.count));
    const StridedRows output = lists_.query_rows(forward_.output, query_head, piece.first);
    float buffer[kMaxAttentionHeadDim];
    for (int64_t r = 0; r < piece.count; ++r) {
      double delta = 0;
      const float* result = output.load(r, value_dim_, buffer);
      for (int64_t i = 0; i < value_dim_; ++i) {
        delta += static_cast<double>(result[i]) * work.output_grad[r * value_dim_ + i];
      }
      if (gradients_.log_sum_exp) delta -= scalar_at(*gradients_.log_sum_exp, query_head, piece.first + r);
      WeightRow& row = rows[static_cast<size_t>(r)];
      row.scores = work.weights + r * kWeightStride;
      row.weight_grads = work.weight_grads + r * kWeightStride;
      row.scale = scale_;
      row.log2_sum =
          scalar_at(*options_.attention.log_sum_exp, query_head, piece.first + r) * std::numbers::log2e_v<float>;
      row.delta = static_cast<float>(delta);
    }
    return rows;
  }

  void differentiate_span(const QueryPiece& piece, const KeySpan& span, const MaskRows& mask,
                          std::vector<WeightRow>& rows, const Workspace& work) const {
    std::fill_n(work.weights, piece.count * kWeightStride, 0.0f);
    std::fill_n(work.weight_grads, piece.count * kWeightStride, 0.0f);
    accumulate_product({work.query, head_dim_, piece.count, head_dim_, work.keys + span.packed * head_dim_, head_dim_,
                        span.count, work.weights, kWeightStride});
    accumulate_product({work.output_grad, value_dim_, piece.count, value_dim_, work.values + span.packed * value_dim_,
                        value_dim_, span.count, work.weight_grads, kWeightStride});
    for (int64_t r = 0; r < piece.count; ++r) {
      WeightRow& row = rows[static_cast<size_t>(r)];
      row.end = span.count;
      row.count = options_.attention.causal
                      ? std::clamp<int64_t>(lists_.causal_limit(piece.first) + r - span.first, 0, span.count)
                      : span.count;
      // Only scores of -inf: nothing depends on this row.
      if (row.log2_sum == -std::numeric_limits<float>::infinity()) row.count = 0;
      if (mask.is_present()) {
        fill_mask_row(mask, r, span.first, row.count, work.bias);
        row.bias = work.bias;
      }
      differentiate_weights(row);
    }
    transpose(work.weights, kWeightStride, piece.count, span.count, work.transposed_weights);
    transpose(work.weight_grads, kWeightStride, piece.count, span.count, work.transposed_grads);
    accumulate_product({work.weight_grads, kWeightStride, piece.count, span.count,
                        work.key_rows + span.packed * kAttentionPanel, lists_.packed_rows(), head_dim_, work.query_grad,
                        padded_head_dim()});
    accumulate_product({work.transposed_weights, kTransposedStride, span.count, piece.count, work.output_grad_panels,
                        kAttentionQueryBlock, value_dim_, work.value_grads + span.packed * padded_value_dim(),
                        padded_value_dim()});
    accumulate_product({work.transposed_grads, kTransposedStride, span.count, piece.count, work.query_panels,
                        kAttentionQueryBlock, head_dim_, work.key_grads + span.packed * padded_head_dim(),
                        padded_head_dim()});
  }

  const BlockSparseForward& forward_;
  const BlockSparseOptions& options_;
  const BlockSparseGradients& gradients_;
  const BlockSparseInputGradients& result_;
  BlockLists lists_;
  int64_t head_dim_;
  int64_t value_dim_;
  float scale_;
};

void fill_zeros(const TensorView& view) {
  for (int64_t head = 0; head < view.size(0) * view.size(1); ++head) {
    const StridedRows rows = head_rows(view, head / view.size(1), head % view.size(1));
    const std::vector<float> zeros(static_cast<size_t>(view.size(3)));
    for (int64_t row = 0; row < view.size(2); ++row) rows.store(zeros.data(), view.size(3), row);
  }
}

}  // namespace

Status block_sparse_attention_backward(const BlockSparseForward& forward, const BlockSparseOptions& options,
                                       const BlockSparseGradients& gradients, const BlockSparseInputGradients& result) {
  QX_RETURN_IF_ERROR(check_arguments(forward, options, gradients, result));
  if (forward.output.num_elements() == 0) {
    fill_zeros(result.query);
    fill_zeros(result.key);
    fill_zeros(result.value);
    return ok_status();
  }
  return Backward(forward, options, gradients, result).run();
}

}  // namespace qx::kernels
