#include "quincunx/kernels/attention/attention_kernel.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "quincunx/kernels/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/attention/attention_kernel.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/attention/attention_tiles-inl.h"
#include "quincunx/kernels/attention/weigh_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// Score rows are 64 bytes longer than a key block: rows a power of two apart would share L1 sets.
constexpr int64_t kScoreStride = kAttentionKeyBlock + kAttentionPanel;

int64_t OutputStride(int64_t value_dim) { return round_up_to_panel(value_dim) + kAttentionPanel; }

// The buffers of one block inside its workspace. `largest` and `sum` are the online softmax's state, in base 2.
struct Buffers {
  float* query;
  float* scores;
  float* output;
  float* largest;
  float* sum;
  float* correction;

  Buffers(float* workspace, int64_t head_dim, int64_t value_dim) {
    query = workspace;
    scores = query + kAttentionQueryBlock * round_up_to_panel(head_dim);
    output = scores + kAttentionQueryBlock * kScoreStride;
    largest = output + kAttentionQueryBlock * OutputStride(value_dim);
    sum = largest + kAttentionQueryBlock;
    correction = sum + kAttentionQueryBlock;
  }
};

// Tile t of the query: [head_dim][rows of the tile], scaled so that the scores are base-2 logarithms.
void PackQuery(const AttentionBlock& block, float* packed) {
  const float scale = block.scale * std::numbers::log2e_v<float>;
  float buffer[kMaxAttentionHeadDim];
  for (int64_t row = 0; row < block.num_rows; row += kTileRows) {
    const int64_t rows = std::min<int64_t>(kTileRows, block.num_rows - row);
    float* tile = packed + row * block.head_dim;
    for (int64_t r = 0; r < rows; ++r) {
      const float* source = block.query.load(row + r, block.head_dim, buffer);
      for (int64_t k = 0; k < block.head_dim; ++k) tile[k * rows + r] = source[k] * scale;
    }
  }
}

// Asks for the part of a mask that MaskRow will read: its rows are far apart and each is used once.
void FetchMask(const MaskRows& mask, int64_t first_row, int64_t rows, int64_t key, int64_t keys) {
  if (mask.key_order != nullptr || mask.key_stride != 1 || (mask.row_stride == 0 && first_row > 0)) return;
  constexpr int64_t kFloatsALine = 16;
  for (int64_t r = first_row; r < first_row + rows; ++r) {
    const int64_t at = mask.row_offset(r) + key;
    if (mask.seen != nullptr) {
      hwy::Prefetch(mask.seen + at);
    } else {
      for (int64_t i = 0; i < keys; i += kFloatsALine) hwy::Prefetch(mask.bias + at + i);
    }
  }
}

// bias[i] of the mask for vectors of scores; -inf hides.
template <class D>
HWY_INLINE hn::Vec<D> LoadBias(D d, const uint8_t* seen) {
  const hn::Rebind<uint8_t, D> du8;
  const hn::Rebind<int32_t, D> di32;
  const auto hidden = hn::Eq(hn::PromoteTo(di32, hn::LoadU(du8, seen)), hn::Zero(di32));
  return hn::IfThenElseZero(hn::RebindMask(d, hidden), hn::Set(d, kNegativeInfinity));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadBias(D d, const float* bias) {
  return hn::Mul(hn::LoadU(d, bias), hn::Set(d, std::numbers::log2e_v<float>));
}

// Hidden scores become -inf, also where they are NaN.
template <class D>
HWY_INLINE void AddBias(D d, hn::Vec<D> bias, float* scores) {
  const hn::Vec<D> hidden = hn::Set(d, kNegativeInfinity);
  hn::Store(hn::IfThenElse(hn::Eq(bias, hidden), hidden, hn::Add(hn::Load(d, scores), bias)), d, scores);
}

// Whole vectors of a row of the mask whose elements are adjacent; returns how many scores that were.
template <typename T>
int64_t MaskVectors(const T* mask, int64_t count, float* scores) {
  const TileTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) AddBias(d, LoadBias(d, mask + i), scores + i);
  return i;
}

// The mask of `count` keys from `first` of the span on, for one row.
void MaskRow(const AttentionBlock& block, int64_t row, const KeySpan& span, int64_t first, int64_t count,
             float* scores) {
  const TileTag d;
  const MaskRows& mask = block.mask;
  int64_t done = 0;
  if (mask.key_order == nullptr && mask.key_stride == 1) {
    const int64_t at = mask.row_offset(row) + span.first + first;
    done =
        mask.seen != nullptr ? MaskVectors(mask.seen + at, count, scores) : MaskVectors(mask.bias + at, count, scores);
  }
  if (done == count) return;
  // Room for the last vector; what lies beyond `count` in it changes scores that nobody reads.
  HWY_ALIGN float bias[kAttentionKeyBlock] = {};
  fill_mask_row(mask, row, span.first + first + done, count - done, bias);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; done + i < count; i += lanes) AddBias(d, hn::Load(d, bias + i), scores + done + i);
}

// The tile of scores of `rows` rows against the keys from `first` of the span on. Each tile meets its mask at once:
// rows of a mask are often a power of two apart, and those of more tiles would push each other out of L2.
HWY_NOINLINE void MaskTile(const AttentionBlock& block, int64_t row, int64_t rows, const KeySpan& span, int64_t first,
                           int64_t width, float* scores) {
  const int64_t count = std::min(width, span.count - first);
  for (int64_t r = 0; r < rows; ++r) MaskRow(block, row + r, span, first, count, scores + r * kScoreStride);
}

// Scores of all rows against the keys of a span of at most a key block, where some row of the tile sees them.
void ComputeScores(const AttentionBlock& block, const Buffers& buffers, const KeySpan& span) {
  const int64_t panel_floats = kAttentionPanel * block.head_dim;
  ForEachTileColumn(span.count, [&](int64_t key, int64_t panels) HWY_ATTR {
    const Panels keys{block.packed_keys + (span.packed + key) * block.head_dim, panel_floats};
    for (int64_t row = 0; row < block.num_rows; row += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, block.num_rows - row);
      if (key >= block.visible(row + rows - 1, span)) continue;
      if (block.mask.is_present()) FetchMask(block.mask, row, rows, span.first + key, panels * kAttentionPanel);
      WithTileSize(rows, panels, [&](auto r, auto p) HWY_ATTR {
        ScoreTile<decltype(r)::kValue, decltype(p)::kValue>(buffers.query + row * block.head_dim, keys, block.head_dim,
                                                            buffers.scores + row * kScoreStride + key, kScoreStride);
      });
      if (block.mask.is_present())
        MaskTile(block, row, rows, span, key, panels * kAttentionPanel, buffers.scores + row * kScoreStride + key);
    }
  });
}

void AccumulateValues(const AttentionBlock& block, const Buffers& buffers, const KeySpan& span) {
  const int64_t stride = OutputStride(block.value_dim), panel_floats = kAttentionPanel * block.padded_keys;
  ForEachTileColumn(block.value_dim, [&](int64_t column, int64_t panels) HWY_ATTR {
    const Panels values{block.packed_values + column * block.padded_keys + span.packed * kAttentionPanel, panel_floats};
    for (int64_t row = 0; row < block.num_rows; row += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, block.num_rows - row);
      const int64_t keys = block.visible(row + rows - 1, span);
      if (keys == 0) continue;
      WithTileSize(rows, panels, [&](auto r, auto p) HWY_ATTR {
        ValueTile<decltype(r)::kValue, decltype(p)::kValue>(buffers.scores + row * kScoreStride, kScoreStride, values,
                                                            keys, buffers.correction + row,
                                                            buffers.output + row * stride + column, stride);
      });
    }
  });
}

void WriteOutput(const AttentionBlock& block, const Buffers& buffers) {
  const int64_t stride = OutputStride(block.value_dim);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    const float sum = buffers.sum[row];
    const float scale = sum == 0 ? 0.0f : 1 / sum;
    float* result = buffers.output + row * stride;
    for (int64_t i = 0; i < block.value_dim; ++i) result[i] *= scale;
    block.output.store(result, block.value_dim, row);
    if (block.log_sum_exp == nullptr) continue;
    const double log2_sum = static_cast<double>(buffers.largest[row]) + std::log2(static_cast<double>(sum));
    block.log_sum_exp[block.output.index(row) * block.log_sum_exp_stride] =
        sum == 0 ? kNegativeInfinity : static_cast<float>(log2_sum * std::numbers::ln2);
  }
}

void AttendSpan(const AttentionBlock& block, const Buffers& buffers, const KeySpan& span) {
  ComputeScores(block, buffers, span);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    const int64_t last_of_tile = std::min(row / kTileRows * kTileRows + kTileRows, block.num_rows) - 1;
    WeighRow(buffers.scores + row * kScoreStride, block.visible(row, span), block.visible(last_of_tile, span),
             buffers.largest[row], buffers.sum[row], buffers.correction[row]);
  }
  AccumulateValues(block, buffers, span);
}

void AttendBlock(const AttentionBlock& block, float* workspace) {
  const Buffers buffers(workspace, block.head_dim, block.value_dim);
  PackQuery(block, buffers.query);
  std::fill_n(buffers.output, block.num_rows * OutputStride(block.value_dim), 0.0f);
  std::fill_n(buffers.largest, block.num_rows, kNegativeInfinity);
  std::fill_n(buffers.sum, block.num_rows, 0.0f);
  for (const KeySpan& span : block.spans) {
    const int64_t last_key = block.visible(block.num_rows - 1, span);
    for (int64_t key = 0; key < last_key; key += kAttentionKeyBlock) {
      const KeySpan part{span.packed + key, span.first + key, std::min(kAttentionKeyBlock, span.count - key)};
      if (block.mask.is_present() && !sees_any(block.mask, block.num_rows, part.first, part.count)) continue;
      AttendSpan(block, buffers, part);
    }
  }
  WriteOutput(block, buffers);
}

void PackKeys(const StridedRows& keys, int64_t head_dim, int64_t count, int64_t packed, float* panels) {
  HWY_ALIGN float buffer[kAttentionPanel][kMaxAttentionHeadDim];
  for (int64_t key = 0; key < count; key += kAttentionPanel) {
    float* panel = panels + (packed + key) * head_dim;
    const int64_t width = std::min(kAttentionPanel, count - key);
    if (width < kAttentionPanel) std::fill_n(panel, head_dim * kAttentionPanel, 0.0f);
    const float* rows[kAttentionPanel];
    for (int64_t j = 0; j < width; ++j) rows[j] = keys.load(key + j, head_dim, buffer[j]);
    for (int64_t k = 0; k < head_dim; ++k) {
      for (int64_t j = 0; j < width; ++j) panel[k * kAttentionPanel + j] = rows[j][k];
    }
  }
}

void PackValues(const StridedRows& values, int64_t value_dim, int64_t count, int64_t packed, int64_t padded_keys,
                float* panels) {
  float buffer[kMaxAttentionHeadDim];
  for (int64_t key = 0; key < count; ++key) {
    const float* source = values.load(key, value_dim, buffer);
    for (int64_t column = 0; column < value_dim; column += kAttentionPanel) {
      float* out = panels + column * padded_keys + (packed + key) * kAttentionPanel;
      const int64_t width = std::min(kAttentionPanel, value_dim - column);
      if (width == kAttentionPanel) {
        std::memcpy(out, source + column, kAttentionPanel * sizeof(float));
        continue;
      }
      for (int64_t i = 0; i < kAttentionPanel; ++i) out[i] = i < width ? source[column + i] : 0.0f;
    }
  }
}

int64_t WorkspaceFloats(int64_t head_dim, int64_t value_dim) {
  return kAttentionQueryBlock * (round_up_to_panel(head_dim) + kScoreStride + OutputStride(value_dim) + 3);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(AttendBlock);
HWY_EXPORT(PackKeys);
HWY_EXPORT(PackValues);

void pack_attention_keys(const StridedRows& keys, int64_t head_dim, int64_t count, int64_t packed, float* panels) {
  HWY_DYNAMIC_DISPATCH(PackKeys)(keys, head_dim, count, packed, panels);
}
void pack_attention_values(const StridedRows& values, int64_t value_dim, int64_t count, int64_t packed,
                           int64_t padded_keys, float* panels) {
  HWY_DYNAMIC_DISPATCH(PackValues)(values, value_dim, count, packed, padded_keys, panels);
}

int64_t attention_workspace_floats(int64_t head_dim, int64_t value_dim) {
  return HWY_STATIC_DISPATCH(WorkspaceFloats)(head_dim, value_dim);
}
void attend_block(const AttentionBlock& block, float* workspace) {
  HWY_DYNAMIC_DISPATCH(AttendBlock)(block, workspace);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
