// Which blocks of keys a block of queries keeps: the lists for block_sparse_attention().
#pragma once

#include <array>
#include <optional>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// A score is the scaled dot product of the means of a query block and a key block.
enum class SelectionRule {
  kTopK,    // the num_blocks * (1 - sparsity) blocks with the highest scores, rounded up
  kCdf,     // the fewest blocks whose estimated softmax weights, length * exp(score), add up to cdf_threshold
  kWindow,  // the blocks at most `window` tiles away in each dimension; tensors are not looked at
};

struct SelectionOptions {
  SelectionRule rule = SelectionRule::kTopK;
  double sparsity = 0;                        // 0 to 1
  double cdf_threshold = 1;                   // 0 to 1
  std::array<int64_t, 3> window = {};         // not negative
  std::optional<float> scale = std::nullopt;  // absent: 1 / sqrt(D)
  // Protections. Blocks that they keep count among those that the rule may keep.
  bool keeps_first_frame = false;  // blocks of tile row 0 see all and are seen by all
  bool keeps_text = false;         // so do text blocks
  int64_t num_sink_blocks = 0;     // the first blocks are seen by all
  int64_t num_recent_blocks = 0;   // a block sees itself and those before it, as many in all
  // bool [B, S], contiguous: false for padding, whose means, weights and pairs do not count. Absent: all count.
  std::optional<TensorView> token_mask = std::nullopt;
  // The order and blocks of tile_order(), the same for queries and keys.
  std::span<const int64_t> order = {}, starts = {};
  std::span<const std::array<int64_t, 3>> tiles = {};
};

// query float32 [B, H, S, D], key float32 [B, H_kv, S, D]; select_idx int64 [B, H, blocks, blocks] (filled up with
// -1), select_num_idx int64 [B, H, blocks]. Lists rise; equal scores go to the lower index, NaN counts as -inf.
// Returns the attained density: the part of all pairs of tokens that the lists keep, 1 where there are none. Pairs of
// padding do not count. Thread-safe.
Result<double> select_blocks(const TensorView& query, const TensorView& key, const SelectionOptions& options,
                             const TensorView& select_idx, const TensorView& select_num_idx);

// How many of num_blocks a sparsity leaves: num_blocks * (1 - sparsity) rounded up, but not by an error of rounding.
int64_t num_kept_blocks(int64_t num_blocks, double sparsity);

// Adds to `mask` the `count` highest of the scores that are not in it yet, or all of them.
void add_highest(std::span<const float> scores, int64_t count, std::span<uint8_t> mask);

}  // namespace qx::kernels
