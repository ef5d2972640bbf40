#include "quincunx/kernels/attention/decode_attention_kernel.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/attention/decode_attention_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/attention/attention_tiles-inl.h"
#include "quincunx/kernels/attention/row_fetcher-inl.h"
#include "quincunx/kernels/attention/weigh_row-inl.h"
#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// Keys between two steps of the softmax: 32 KiB of f32 at D = 64.
constexpr int64_t kBlockKeys = 128;
constexpr int64_t kScoreRowStride = kBlockKeys + kAttentionPanel;
// Keys whose products with a query are summed up together.
constexpr int64_t kGroupKeys = 4;
// Keys that all rows and all columns meet before the next ones: the memory does not rest for long while some are met
// again.
constexpr int64_t kChunkKeys = 16;
constexpr int kVectorRegisters = HWY_TARGET == HWY_AVX3 ? 32 : 16;
// kMaxRows x kGroupKeys sums, the vectors of a group and one of a query.
constexpr int kMaxRows = kVectorRegisters == 32 ? 4 : 2;
// Vectors of values that are accumulated together at most, for one and two queries and for more.
constexpr int kWideVectors = 8;
constexpr int kNarrowVectors = 4;

#if HWY_TARGET == HWY_SCALAR
// out[0..4) = the sums of the lanes of four vectors.
HWY_INLINE void StoreSums(const TileVector (&sums)[kGroupKeys], float* out) {
  for (int j = 0; j < kGroupKeys; ++j) out[j] = hn::GetLane(sums[j]);
}
#else
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4> > FoldToFour(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return FoldToFour(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// out[0..4) = the sums of the lanes of four vectors.
HWY_INLINE void StoreSums(const TileVector (&sums)[kGroupKeys], float* out) {
  const TileTag d;
  const hn::Repartition<double, TileTag> pairs;
  const TileVector first = hn::Add(hn::InterleaveLower(d, sums[0], sums[1]), hn::InterleaveUpper(d, sums[0], sums[1]));
  const TileVector second = hn::Add(hn::InterleaveLower(d, sums[2], sums[3]), hn::InterleaveUpper(d, sums[2], sums[3]));
  const auto first_pairs = hn::BitCast(pairs, first), second_pairs = hn::BitCast(pairs, second);
  const TileVector lower = hn::BitCast(d, hn::InterleaveLower(pairs, first_pairs, second_pairs));
  const TileVector upper = hn::BitCast(d, hn::InterleaveUpper(pairs, first_pairs, second_pairs));
  hn::Store(FoldToFour(d, hn::Add(lower, upper)), hn::FixedTag<float, 4>(), out);
}
#endif

// A chunk of rows, and those of them on whose account this tile fetches: the tiles that meet the chunk take turns.
struct Chunk {
  int64_t begin, end;
  int64_t fetch_begin, fetch_end;

  template <typename T>
  HWY_INLINE Fetcher<T> FetcherFor(const Stream<T>& stream) const {
    return {stream, fetch_begin, std::min(fetch_end, end)};
  }
};

// scores[r][0..4) = query[r] . keys[0..4)
template <int kRows, typename T>
HWY_INLINE void ScoreGroup(const float* HWY_RESTRICT query, int64_t query_stride, const T* const* keys,
                           int64_t head_dim, Fetcher<T>& fetcher, float* HWY_RESTRICT scores) {
  const TileTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  TileVector sum[kRows][kGroupKeys];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kGroupKeys; ++j) sum[r][j] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + lanes <= head_dim; i += lanes) {
    TileVector key[kGroupKeys];
    for (int j = 0; j < kGroupKeys; ++j) key[j] = LoadFloat(d, keys[j] + i);
    fetcher.template FetchVectors<kGroupKeys>();
    for (int r = 0; r < kRows; ++r) {
      const TileVector q = hn::Load(d, query + r * query_stride + i);
      for (int j = 0; j < kGroupKeys; ++j) sum[r][j] = hn::MulAdd(q, key[j], sum[r][j]);
    }
  }
  if (i < head_dim) {
    const auto rest = static_cast<size_t>(head_dim - i);
    TileVector key[kGroupKeys];
    for (int j = 0; j < kGroupKeys; ++j) key[j] = LoadFloatTail(d, keys[j] + i, rest);
    fetcher.template FetchVectors<kGroupKeys>();
    for (int r = 0; r < kRows; ++r) {
      const TileVector q = hn::Load(d, query + r * query_stride + i);
      for (int j = 0; j < kGroupKeys; ++j) sum[r][j] = hn::MulAdd(q, key[j], sum[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) StoreSums(sum[r], scores + r * kScoreRowStride);
}

template <int kRows, typename T>
void ScoreKeys(const float* query, int64_t query_stride, const Stream<T>& keys, const Chunk& chunk, float* scores) {
  Fetcher<T> fetcher = chunk.FetcherFor(keys);
  for (int64_t j = chunk.begin; j < chunk.end; j += kGroupKeys) {
    const T* group[kGroupKeys];
    // The last group is filled up with its last key; nobody reads those scores.
    for (int64_t n = 0; n < kGroupKeys; ++n) group[n] = keys.rows[std::min(j + n, keys.count - 1)];
    ScoreGroup<kRows>(query, query_stride, group, keys.width, fetcher, scores + j);
  }
}

// What the columns of a row tile's output are made of.
struct ValueSum {
  const float* weights;     // rows kScoreRowStride apart
  const float* correction;  // of what is there
  float* output;
  int64_t stride;
};

// kVectors vectors of columns from `column` on; with `tail` the last elements, fewer than a vector.
template <int kRows, int kVectors, bool kIsTail, typename T>
HWY_INLINE void AddColumns(const ValueSum& s, const Stream<T>& values, const Chunk& chunk, Fetcher<T>& fetcher,
                           int64_t column, size_t tail) {
  const TileTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  TileVector sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const TileVector c = hn::Set(d, chunk.begin == 0 ? s.correction[r] : 1.0f);
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::Mul(c, hn::Load(d, s.output + r * s.stride + column + v * lanes));
    }
  }
  for (int64_t j = chunk.begin; j < chunk.end; ++j) {
    fetcher.template FetchVectors<kVectors>();
    TileVector weight[kRows];
    for (int r = 0; r < kRows; ++r) weight[r] = hn::Set(d, s.weights[r * kScoreRowStride + j]);
    for (int v = 0; v < kVectors; ++v) {
      const T* at = values.rows[j] + column + v * lanes;
      TileVector value;
      if constexpr (kIsTail) {
        value = LoadFloatTail(d, at, tail);
      } else {
        value = LoadFloat(d, at);
      }
      for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(weight[r], value, sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, s.output + r * s.stride + column + v * lanes);
  }
}

template <int kRows, int kVectors, typename T>
HWY_INLINE void AddPasses(const ValueSum& sum, const Stream<T>& values, const Chunk& chunk, Fetcher<T>& fetcher,
                          int64_t column) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(TileTag()));
  for (; column + kVectors * lanes <= values.width; column += kVectors * lanes) {
    AddColumns<kRows, kVectors, false>(sum, values, chunk, fetcher, column, 0);
  }
  if constexpr (kVectors > 1) {
    AddPasses<kRows, kVectors / 2>(sum, values, chunk, fetcher, column);
  } else if (column < values.width) {
    AddColumns<kRows, 1, true>(sum, values, chunk, fetcher, column, static_cast<size_t>(values.width - column));
  }
}

template <int kRows, typename T>
void AddValues(const ValueSum& sum, const Stream<T>& values, const Chunk& chunk) {
  constexpr int kVectors = kRows * 2 <= kMaxRows ? kWideVectors : kNarrowVectors;
  Fetcher<T> fetcher = chunk.FetcherFor(values);
  AddPasses<kRows, kVectors>(sum, values, chunk, fetcher, 0);
}

// Calls tile(RowCount<rows>(), first row) for tiles of kMaxRows rows and a last one of fewer.
template <class Tile>
HWY_INLINE void ForEachRowTile(int64_t num_rows, const Tile& tile) {
  for (int64_t row = 0; row < num_rows; row += kMaxRows) {
    switch (std::min<int64_t>(kMaxRows, num_rows - row)) {
      case 1: tile(RowCount<1>(), row); break;
      case 2: tile(RowCount<2>(), row); break;  // NOLINT(bugprone-branch-clone): as the next where kMaxRows is 2
      case 3: tile(RowCount<std::min(3, kMaxRows)>(), row); break;
      default: tile(RowCount<kMaxRows>(), row);
    }
  }
}

// Calls tile(RowCount<rows>(), first row, chunk) for all tiles of rows of each chunk of `count` keys.
template <class Tile>
HWY_INLINE void ForEachChunk(int64_t num_rows, int64_t count, const Tile& tile) {
  const int64_t num_tiles = (num_rows + kMaxRows - 1) / kMaxRows;
  for (int64_t begin = 0; begin < count; begin += kChunkKeys) {
    ForEachRowTile(num_rows, [&](auto rows, int64_t row) HWY_ATTR {
      const int64_t t = row / kMaxRows;
      tile(rows, row,
           Chunk{begin, std::min(count, begin + kChunkKeys), begin + t * kChunkKeys / num_tiles,
                 begin + (t + 1) * kChunkKeys / num_tiles});
    });
  }
}

template <typename T>
void DecodeRows(const DecodeRun& run, float* workspace) {
  const auto* key_rows = reinterpret_cast<const T* const*>(run.key_rows);
  const auto* value_rows = reinterpret_cast<const T* const*>(run.value_rows);
  float* scores = workspace;
  float* correction = scores + kDecodeQueryRows * kScoreRowStride;
  const int64_t query_stride = round_up_to_panel(run.head_dim), output_stride = decode_output_stride(run.value_dim);
  std::fill_n(run.output, run.num_queries * output_stride, 0.0f);
  std::fill_n(run.largest, run.num_queries, kNegativeInfinity);
  std::fill_n(run.sum, run.num_queries, 0.0f);
  for (int64_t first = 0; first < run.num_keys; first += kBlockKeys) {
    const int64_t count = std::min(kBlockKeys, run.num_keys - first);
    const bool is_last = first + count == run.num_keys;
    const T* const* next_rows =
        is_last ? reinterpret_cast<const T* const*>(run.next_key_rows) : key_rows + first + count;
    const int64_t next_count = is_last ? run.num_next_keys : std::min(kBlockKeys, run.num_keys - first - count);
    const Stream<T> keys{key_rows + first, count, value_rows + first, count, run.head_dim};
    const Stream<T> values{value_rows + first, count, next_rows, next_count, run.value_dim};
    ForEachChunk(run.num_queries, count, [&](auto rows, int64_t row, const Chunk& chunk) HWY_ATTR {
      ScoreKeys<decltype(rows)::kValue>(run.query + row * query_stride, query_stride, keys, chunk,
                                        scores + row * kScoreRowStride);
    });
    for (int64_t row = 0; row < run.num_queries; ++row) {
      WeighRow(scores + row * kScoreRowStride, std::clamp<int64_t>(run.visible[row] - first, 0, count), count,
               run.largest[row], run.sum[row], correction[row]);
    }
    ForEachChunk(run.num_queries, count, [&](auto rows, int64_t row, const Chunk& chunk) HWY_ATTR {
      AddValues<decltype(rows)::kValue>(
          {scores + row * kScoreRowStride, correction + row, run.output + row * output_stride, output_stride}, values,
          chunk);
    });
  }
}

void DecodeRunOfAnyType(const DecodeRun& run, float* workspace) {
  switch (run.dtype) {
    case DType::kBFloat16: return DecodeRows<BFloat16>(run, workspace);
    case DType::kFloat16: return DecodeRows<Float16>(run, workspace);
    default: return DecodeRows<float>(run, workspace);
  }
}

int64_t DecodeWorkspaceFloats() { return kDecodeQueryRows * (kScoreRowStride + 1); }

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(DecodeRunOfAnyType);

int64_t decode_workspace_floats() { return HWY_STATIC_DISPATCH(DecodeWorkspaceFloats)(); }
void decode_run(const DecodeRun& run, float* workspace) { HWY_DYNAMIC_DISPATCH(DecodeRunOfAnyType)(run, workspace); }

}  // namespace qx::kernels
#endif  // HWY_ONCE
