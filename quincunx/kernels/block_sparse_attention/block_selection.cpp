#include "quincunx/kernels/block_sparse_attention/block_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/block_sparse_attention/block_list_checks.h"
#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

Status check_list_shape(std::string_view name, const TensorView& view, const std::vector<int64_t>& shape) {
  if (view.dtype() == DType::kInt64 && std::ranges::equal(view.shape(), shape) && view.is_contiguous()) {
    return ok_status();
  }
  return invalid_argument(std::string(name) + ": expected a contiguous int64 list for each query block, got " +
                          view.to_string());
}

Status check_fraction(std::string_view name, double value) {
  if (value >= 0 && value <= 1) return ok_status();
  return invalid_argument(std::string(name) + ": expected a number from 0 to 1, got " + std::to_string(value));
}

Status check_count(std::string_view name, int64_t value) {
  if (value >= 0) return ok_status();
  return invalid_argument(std::string(name) + ": expected 0 or more, got " + std::to_string(value));
}

Status check_selection(const TensorView& query, const TensorView& key, const SelectionOptions& options) {
  for (const auto& [name, view] : {NamedView{"query", &query}, NamedView{"key", &key}}) {
    QX_RETURN_IF_ERROR(check_float32(name, *view));
    QX_RETURN_IF_ERROR(check_rank(name, *view, 4));
  }
  const bool heads_divide = key.size(1) == 0 ? query.size(1) == 0 : query.size(1) % key.size(1) == 0;
  if (key.size(0) != query.size(0) || key.size(2) != query.size(2) || key.size(3) != query.size(3) || !heads_divide) {
    return invalid_argument("key: expected the batch, length and head size of query " + query.to_string() +
                            " and a number of heads that divides its heads, got " + key.to_string());
  }
  QX_RETURN_IF_ERROR(check_fraction("sparsity", options.sparsity));
  QX_RETURN_IF_ERROR(check_fraction("cdf_threshold", options.cdf_threshold));
  for (const int64_t tiles : options.window) QX_RETURN_IF_ERROR(check_count("window", tiles));
  QX_RETURN_IF_ERROR(check_count("keep_sink", options.num_sink_blocks));
  QX_RETURN_IF_ERROR(check_count("keep_recent", options.num_recent_blocks));
  if (options.scale && !std::isfinite(*options.scale)) {
    return invalid_argument("scale: expected a finite number, got " + std::to_string(*options.scale));
  }
  QX_RETURN_IF_ERROR(check_block_starts("starts", options.starts, query.size(2)));
  if (options.token_mask) {
    const TensorView& mask = *options.token_mask;
    const int64_t shape[] = {query.size(0), query.size(2)};
    if (mask.dtype() != DType::kBool || !std::ranges::equal(mask.shape(), shape) || !mask.is_contiguous()) {
      return invalid_argument("token_mask: expected a contiguous bool mask of the batch and length of query " +
                              query.to_string() + ", got " + mask.to_string());
    }
  }
  if (options.tiles.size() + 1 != options.starts.size()) {
    return invalid_argument("tiles: expected one for each of the " + std::to_string(options.starts.size() - 1) +
                            " blocks, got " + std::to_string(options.tiles.size()));
  }
  return check_order("order", options.order, query.size(2));
}

// Where the mean of a block stands: mean(block)[d] at output[block * block_stride + d * dim_stride].
struct Means {
  float* output;
  int64_t block_stride;
  int64_t dim_stride;
};

// The mean of each block's rows of one head. `counts`: null, or whether each row of the tensor does.
void block_means(StridedRows rows, const uint8_t* counts, int64_t head_dim, std::span<const int64_t> starts,
                 const Means& means) {
  std::vector<float> sum(static_cast<size_t>(head_dim));
  for (size_t block = 0; block + 1 < starts.size(); ++block) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    int64_t num_rows = 0;
    for (int64_t row = starts[block]; row < starts[block + 1]; ++row) {
      if (counts != nullptr && counts[rows.index(row)] == 0) continue;
      ++num_rows;
      const auto* source = reinterpret_cast<const float*>(rows.row(row));
      for (int64_t d = 0; d < head_dim; ++d) sum[static_cast<size_t>(d)] += source[d * rows.column_stride];
    }
    // Without a row that counts the mean is NaN, and so are its scores.
    float* mean = means.output + static_cast<int64_t>(block) * means.block_stride;
    for (int64_t d = 0; d < head_dim; ++d) {
      mean[d * means.dim_stride] = sum[static_cast<size_t>(d)] / static_cast<float>(num_rows);
    }
  }
}

// One call of select_blocks(), its arguments checked.
class BlockSelection {
 public:
  BlockSelection(const TensorView& query, const TensorView& key, const SelectionOptions& options)
      : query_(query),
        key_(key),
        options_(options),
        num_blocks_(static_cast<int64_t>(options.tiles.size())),
        head_dim_(query.size(3)),
        scale_(options.scale.value_or(1 / std::sqrt(static_cast<float>(head_dim_)))) {
    for (int64_t batch = 0; batch < query.size(0); ++batch) count_tokens(batch);
  }

  // Pairs of tokens that count, of all heads.
  double all_pairs() const {
    double pairs = 0;
    for (int64_t batch = 0; batch < query_.size(0); ++batch) {
      const auto* first = lengths_.data() + batch * num_blocks_;
      const auto tokens = static_cast<double>(std::accumulate(first, first + num_blocks_, int64_t{0}));
      pairs += tokens * tokens * static_cast<double>(query_.size(1));
    }
    return pairs;
  }

  // Fills the lists of all heads and returns how many pairs of tokens they keep.
  double run(int64_t* idx, int64_t* num) const {
    const int64_t num_heads = query_.size(0) * query_.size(1);
    std::vector<double> pairs(static_cast<size_t>(num_heads));
    parallel_for(0, num_heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head) {
        pairs[static_cast<size_t>(head)] =
            select_head(head, idx + head * num_blocks_ * num_blocks_, num + head * num_blocks_);
      }
    });
    return std::accumulate(pairs.begin(), pairs.end(), 0.0);
  }

 private:
  bool looks_at_scores() const { return options_.rule != SelectionRule::kWindow; }
  // Tokens of a block that count.
  int64_t length_of(int64_t batch, int64_t block) const {
    return lengths_[static_cast<size_t>(batch * num_blocks_ + block)];
  }
  const uint8_t* token_mask(int64_t batch) const {
    return options_.token_mask ? options_.token_mask->data_as<uint8_t>() + batch * query_.size(2) : nullptr;
  }

  void count_tokens(int64_t batch) {
    const uint8_t* counts = token_mask(batch);
    for (size_t block = 0; block < options_.tiles.size(); ++block) {
      int64_t length = 0;
      for (int64_t at = options_.starts[block]; at < options_.starts[block + 1]; ++at) {
        const int64_t row = options_.order.empty() ? at : options_.order[static_cast<size_t>(at)];
        if (counts == nullptr || counts[row] != 0) ++length;
      }
      lengths_.push_back(length);
    }
  }

  StridedRows rows_of(const TensorView& view, int64_t batch, int64_t head) const {
    StridedRows rows = head_rows(view, batch, head);
    if (!options_.order.empty()) rows.order = options_.order.data();
    return rows;
  }

  double select_head(int64_t query_head, int64_t* idx, int64_t* num) const {
    const int64_t batch = query_head / query_.size(1), head = query_head % query_.size(1);
    std::vector<float> queries, keys;
    if (looks_at_scores()) {
      queries.resize(static_cast<size_t>(num_blocks_ * head_dim_));
      keys.resize(queries.size());
      block_means(rows_of(query_, batch, head), token_mask(batch), head_dim_, options_.starts,
                  {queries.data(), head_dim_, 1});
      block_means(rows_of(key_, batch, head / (query_.size(1) / key_.size(1))), token_mask(batch), head_dim_,
                  options_.starts, {keys.data(), 1, num_blocks_});
    }
    std::vector<float> scores(static_cast<size_t>(num_blocks_));
    std::vector<uint8_t> mask(static_cast<size_t>(num_blocks_));
    double pairs = 0;
    for (int64_t row = 0; row < num_blocks_; ++row) {
      if (looks_at_scores()) score_row(queries.data() + row * head_dim_, keys.data(), scores);
      protect(row, mask);
      apply_rule(batch, row, scores, mask);
      pairs += write_list(batch, row, mask, idx + row * num_blocks_, num + row);
    }
    return pairs;
  }

  // keys is [head_dim][blocks], so that the inner loop runs over neighbours.
  void score_row(const float* query, const float* keys, std::vector<float>& scores) const {
    std::fill(scores.begin(), scores.end(), 0.0f);
    for (int64_t d = 0; d < head_dim_; ++d) {
      const float q = query[d] * scale_;
      for (int64_t j = 0; j < num_blocks_; ++j) scores[static_cast<size_t>(j)] += q * keys[d * num_blocks_ + j];
    }
    for (float& score : scores) score = std::isnan(score) ? kNegativeInfinity : score;
  }

  bool is_global(int64_t block) const {
    const int64_t frame = options_.tiles[static_cast<size_t>(block)][0];
    return (options_.keeps_first_frame && frame == 0) || (options_.keeps_text && frame < 0);
  }

  void protect(int64_t row, std::vector<uint8_t>& mask) const {
    const bool sees_all = is_global(row);
    for (int64_t block = 0; block < num_blocks_; ++block) {
      const bool is_recent = block <= row && row - block < options_.num_recent_blocks;
      mask[static_cast<size_t>(block)] =
          sees_all || is_global(block) || block < options_.num_sink_blocks || is_recent ? 1 : 0;
    }
  }

  void apply_rule(int64_t batch, int64_t row, const std::vector<float>& scores, std::vector<uint8_t>& mask) const {
    switch (options_.rule) {
      case SelectionRule::kTopK: {
        const auto protected_blocks = std::count(mask.begin(), mask.end(), uint8_t{1});
        add_highest(scores, num_kept_blocks(num_blocks_, options_.sparsity) - protected_blocks, mask);
        break;
      }
      case SelectionRule::kCdf: add_by_weight(batch, scores, mask); break;
      case SelectionRule::kWindow: add_window(row, mask); break;
    }
  }

  void add_by_weight(int64_t batch, const std::vector<float>& scores, std::vector<uint8_t>& mask) const {
    const float largest = *std::max_element(scores.begin(), scores.end());
    std::vector<double> weights(scores.size());
    double total = 0, kept = 0;
    for (size_t j = 0; j < scores.size(); ++j) {
      weights[j] = scores[j] == largest ? 1 : std::exp(static_cast<double>(scores[j]) - largest);
      weights[j] *= static_cast<double>(length_of(batch, static_cast<int64_t>(j)));
      total += weights[j];
      if (mask[j] != 0) kept += weights[j];
    }
    std::vector<size_t> by_weight(scores.size());
    std::iota(by_weight.begin(), by_weight.end(), size_t{0});
    std::sort(by_weight.begin(), by_weight.end(),
              [&](size_t a, size_t b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; });
    for (const size_t block : by_weight) {
      // A sum may reach 1 by rounding before its last block.
      if (options_.cdf_threshold < 1 && kept >= options_.cdf_threshold * total) break;
      if (mask[block] != 0) continue;
      mask[block] = 1;
      kept += weights[block];
    }
  }

  void add_window(int64_t row, std::vector<uint8_t>& mask) const {
    const auto& here = options_.tiles[static_cast<size_t>(row)];
    for (size_t block = 0; block < mask.size(); ++block) {
      const auto& there = options_.tiles[block];
      // Text stands outside the grid: only keeps_text joins the two.
      bool is_near = (here[0] < 0) == (there[0] < 0);
      for (size_t i = 0; i < 3; ++i) is_near = is_near && std::abs(here[i] - there[i]) <= options_.window[i];
      if (is_near) mask[block] = 1;
    }
  }

  double write_list(int64_t batch, int64_t row, const std::vector<uint8_t>& mask, int64_t* list, int64_t* count) const {
    int64_t keys = 0;
    *count = 0;
    for (int64_t block = 0; block < num_blocks_; ++block) {
      if (mask[static_cast<size_t>(block)] == 0) continue;
      list[(*count)++] = block;
      keys += length_of(batch, block);
    }
    std::fill(list + *count, list + num_blocks_, -1);
    return static_cast<double>(keys) * static_cast<double>(length_of(batch, row));
  }

  const TensorView& query_;
  const TensorView& key_;
  const SelectionOptions& options_;
  int64_t num_blocks_;
  int64_t head_dim_;
  float scale_;
  std::vector<int64_t> lengths_;  // [B, blocks]
};

}  // namespace

int64_t num_kept_blocks(int64_t num_blocks, double sparsity) {
  const double exact = static_cast<double>(num_blocks) * (1 - sparsity);
  // 10 * (1 - 0.7) is 3 and a few units in the last place: a part of a block below 2^-40 of all is none.
  const auto kept = static_cast<int64_t>(std::ceil(exact - static_cast<double>(num_blocks) * 0x1p-40));
  return std::clamp<int64_t>(kept, 0, num_blocks);
}

void add_highest(std::span<const float> scores, int64_t count, std::span<uint8_t> mask) {
  std::vector<size_t> candidates;
  for (size_t j = 0; j < scores.size(); ++j) {
    if (mask[j] == 0) candidates.push_back(j);
  }
  const auto take = std::clamp<int64_t>(count, 0, static_cast<int64_t>(candidates.size()));
  const auto value = [&](size_t j) { return std::isnan(scores[j]) ? kNegativeInfinity : scores[j]; };
  const auto is_before = [&](size_t a, size_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; };
  if (take < static_cast<int64_t>(candidates.size())) {
    std::nth_element(candidates.begin(), candidates.begin() + take, candidates.end(), is_before);
  }
  for (int64_t i = 0; i < take; ++i) mask[candidates[static_cast<size_t>(i)]] = 1;
}

Result<double> select_blocks(const TensorView& query, const TensorView& key, const SelectionOptions& options,
                             const TensorView& select_idx, const TensorView& select_num_idx) {
  QX_RETURN_IF_ERROR(check_selection(query, key, options));
  const auto blocks = static_cast<int64_t>(options.tiles.size());
  QX_RETURN_IF_ERROR(check_list_shape("select_idx", select_idx, {query.size(0), query.size(1), blocks, blocks}));
  QX_RETURN_IF_ERROR(check_list_shape("select_num_idx", select_num_idx, {query.size(0), query.size(1), blocks}));
  BlockSelection selection(query, key, options);
  const double kept = selection.run(select_idx.data_as<int64_t>(), select_num_idx.data_as<int64_t>());
  return selection.all_pairs() == 0 ? 1.0 : kept / selection.all_pairs();
}

}  // namespace qx::kernels
