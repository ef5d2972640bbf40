#include "quincunx/kernels/attention/decode_attention.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "quincunx/kernels/attention/decode_arguments.h"
#include "quincunx/kernels/attention/decode_attention_kernel.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
// Floats of queries that a task packs at least.
constexpr int64_t kPackGrain = 16384;

// Where the rows of keys or values of one head of one batch item lie.
class CacheRows {
 public:
  // Without a table the tensor is [B, H, C, D], with one [pages, H, P, D].
  CacheRows(const TensorView& tensor, const TensorView* table, int64_t batch, int64_t head)
      : table_(table),
        batch_(batch),
        page_size_(tensor.size(2)),
        page_bytes_(tensor.stride(0) * dtype_size_bytes(tensor.dtype())),
        row_bytes_(tensor.stride(2) * dtype_size_bytes(tensor.dtype())),
        data_(tensor.data_as<char>() + head * tensor.stride(1) * dtype_size_bytes(tensor.dtype())) {
    if (table == nullptr) data_ += batch * page_bytes_;
  }

  void collect(int64_t first, int64_t count, const void** rows) const {
    if (table_ == nullptr) {
      for (int64_t i = 0; i < count; ++i) rows[i] = data_ + (first + i) * row_bytes_;
      return;
    }
    int64_t page = first / page_size_, row = first % page_size_;
    for (int64_t i = 0; i < count; ++page, row = 0) {
      const char* at = data_ + table_entry(*table_, batch_, page) * page_bytes_;
      for (; row < page_size_ && i < count; ++row) rows[i++] = at + row * row_bytes_;
    }
  }

 private:
  const TensorView* table_;
  int64_t batch_;
  int64_t page_size_;
  int64_t page_bytes_;
  int64_t row_bytes_;
  const char* data_;
};

bool has_contiguous_rows(const TensorView& tensor) { return tensor.stride(3) == 1 || tensor.size(3) == 1; }

// The rows of a run as decode_run takes them: as they lie, or copied to f32.
struct RunRows {
  std::array<const void*, kDecodeSplitKeys> rows;
  std::vector<float> copies;

  void collect(const TensorView& tensor, const CacheRows& cache, int64_t first, int64_t count, bool is_copied) {
    cache.collect(first, count, rows.data());
    if (!is_copied) return;
    const int64_t width = tensor.size(3);
    copies.resize(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i) {
      float* copy = copies.data() + i * width;
      load_row_as_f32(tensor.dtype(), rows[static_cast<size_t>(i)], tensor.stride(3), width, copy);
      rows[static_cast<size_t>(i)] = copy;
    }
  }
};

// One call, its arguments checked. The queries that read the same head of the cache stand together: row r of a group is
// token r % L of query head r / L. At most kDecodeQueryRows of them and one run of keys are a task.
class Decode {
 public:
  Decode(const TensorView& query, const TensorView& keys, const TensorView& values, const TensorView* table,
         const DecodeAttentionOptions& options, const TensorView& output)
      : query_(query),
        keys_(keys),
        values_(values),
        table_(table),
        options_(options),
        output_(output),
        key_heads_(keys.size(1)),
        group_(query.size(1) / key_heads_),
        num_rows_(group_ * query.size(2)),
        row_chunks_((num_rows_ + kDecodeQueryRows - 1) / kDecodeQueryRows),
        query_stride_(round_up_to_panel(query.size(3))),
        output_stride_(decode_output_stride(values.size(3))),
        is_copied_(!has_contiguous_rows(keys) || !has_contiguous_rows(values)) {
    first_split_.push_back(0);
    for (int64_t batch = 0; batch < query.size(0); ++batch) {
      first_split_.push_back(first_split_.back() + (num_keys(batch) + kDecodeSplitKeys - 1) / kDecodeSplitKeys);
    }
  }

  Status run() {
    const int64_t groups = query_.size(0) * key_heads_;
    int64_t states = 0, floats = 0;
    // Outputs, largest scores and sums of every task.
    const bool overflows = __builtin_mul_overflow(first_split_.back(), key_heads_ * num_rows_, &states) ||
                           __builtin_mul_overflow(states, output_stride_ + 2, &floats) ||
                           floats > std::numeric_limits<int64_t>::max() / 8;
    const auto packed = hwy::AllocateAligned<float>(static_cast<size_t>(groups * num_rows_ * query_stride_));
    const auto memory =
        overflows ? nullptr : hwy::AllocateAligned<float>(static_cast<size_t>(std::max(floats, int64_t{1})));
    if (packed == nullptr || memory == nullptr) {
      return resource_exhausted("keys: no memory for the results of " + std::to_string(first_split_.back()) +
                                " runs of " + std::to_string(kDecodeSplitKeys) + " keys of " + keys_.to_string());
    }
    packed_query_ = packed.get();
    outputs_ = memory.get();
    largest_ = outputs_ + states * output_stride_;
    sums_ = largest_ + states;
    parallel_for(0, groups, std::max<int64_t>(1, kPackGrain / (num_rows_ * query_stride_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t group = begin; group < end; ++group) pack_queries(group);
                 });
    parallel_for(0, first_split_.back() * key_heads_ * row_chunks_, 1,
                 [&](int64_t begin, int64_t end) { run_tasks(begin, end); });
    parallel_for(0, groups, std::max<int64_t>(1, kPackGrain / (num_rows_ * output_stride_)),
                 [&](int64_t begin, int64_t end) {
                   std::vector<float> row(static_cast<size_t>(output_stride_));
                   for (int64_t group = begin; group < end; ++group) {
                     for (int64_t r = 0; r < num_rows_; ++r) join(group, r, row.data());
                   }
                 });
    return ok_status();
  }

 private:
  int64_t num_keys(int64_t batch) const {
    return options_.key_lengths.empty() ? keys_.size(2) : options_.key_lengths[static_cast<size_t>(batch)];
  }
  int64_t num_splits(int64_t batch) const {
    return first_split_[static_cast<size_t>(batch) + 1] - first_split_[static_cast<size_t>(batch)];
  }
  // Number of the state of a row after a split.
  int64_t state_of(int64_t batch, int64_t key_head, int64_t split, int64_t row) const {
    return ((first_split_[static_cast<size_t>(batch)] * key_heads_ + key_head * num_splits(batch)) + split) *
               num_rows_ +
           row;
  }
  // Element offset of a row of a [B, H, L, ...] tensor.
  int64_t offset(const TensorView& tensor, int64_t group, int64_t row) const {
    const int64_t head = group % key_heads_ * group_ + row / query_.size(2);
    return group / key_heads_ * tensor.stride(0) + head * tensor.stride(1) + row % query_.size(2) * tensor.stride(2);
  }

  void pack_queries(int64_t group) const {
    const float scale =
        options_.scale.value_or(1 / std::sqrt(static_cast<float>(query_.size(3)))) * std::numbers::log2e_v<float>;
    const int64_t bytes = dtype_size_bytes(query_.dtype());
    for (int64_t row = 0; row < num_rows_; ++row) {
      float* to = packed_query_ + (group * num_rows_ + row) * query_stride_;
      load_row_as_f32(query_.dtype(), query_.data_as<char>() + offset(query_, group, row) * bytes, query_.stride(3),
                      query_.size(3), to);
      for (int64_t i = 0; i < query_.size(3); ++i) to[i] *= scale;
      std::fill(to + query_.size(3), to + query_stride_, 0.0f);
    }
  }

  // Tasks stand in the order of batch items, heads, splits, chunks of rows.
  void run_tasks(int64_t begin, int64_t end) const {
    const auto workspace = hwy::AllocateAligned<float>(static_cast<size_t>(decode_workspace_floats()));
    RunRows keys, values, next_keys;
    Task task = task_at(begin);
    collect(task, keys_, keys);
    for (int64_t i = begin; i < end; ++i) {
      collect(task, values_, values);
      const Task next = i + 1 < end ? task_at(i + 1) : task;
      // Copies of the next run's keys would push those of this one out of the cache.
      const bool has_next = i + 1 < end && !is_copied_;
      if (has_next) collect(next, keys_, next_keys);
      DecodeRun run;
      if (has_next) {
        run.next_key_rows = next_keys.rows.data();
        run.num_next_keys = next.count;
      }
      attend(task, keys, values, run, workspace.get());
      task = next;
      if (has_next) std::swap(keys, next_keys);
      if (!has_next && i + 1 < end) collect(task, keys_, keys);
    }
  }

  // A run of keys and the rows that meet it.
  struct Task {
    int64_t batch, key_head, split, first_row;
    int64_t first, count;  // keys
  };

  Task task_at(int64_t index) const {
    const int64_t chunk = index % row_chunks_, run = index / row_chunks_;
    const auto next = std::upper_bound(first_split_.begin(), first_split_.end(), run / key_heads_);
    const int64_t batch = next - first_split_.begin() - 1;
    const int64_t in_batch = run - first_split_[static_cast<size_t>(batch)] * key_heads_;
    const int64_t split = in_batch % num_splits(batch);
    const int64_t first = split * kDecodeSplitKeys;
    return {batch, in_batch / num_splits(batch),
            split, chunk * kDecodeQueryRows,
            first, std::min(kDecodeSplitKeys, num_keys(batch) - first)};
  }

  void collect(const Task& task, const TensorView& tensor, RunRows& rows) const {
    rows.collect(tensor, CacheRows(tensor, table_, task.batch, task.key_head), task.first, task.count, is_copied_);
  }

  void attend(const Task& task, const RunRows& keys, const RunRows& values, DecodeRun run, float* workspace) const {
    const auto [batch, key_head, split, first_row, first_key, count] = task;
    int64_t visible[kDecodeQueryRows];
    run.num_queries = std::min(kDecodeQueryRows, num_rows_ - first_row);
    const int64_t tokens = query_.size(2);
    for (int64_t r = 0; r < run.num_queries; ++r) {
      const int64_t limit = num_keys(batch) - tokens + 1 + (first_row + r) % tokens;
      visible[r] = std::clamp<int64_t>(limit - first_key, 0, count);
    }
    const int64_t state = state_of(batch, key_head, split, first_row);
    run.query = packed_query_ + ((batch * key_heads_ + key_head) * num_rows_ + first_row) * query_stride_;
    run.head_dim = keys_.size(3);
    run.value_dim = values_.size(3);
    run.dtype = is_copied_ ? DType::kFloat32 : keys_.dtype();
    run.key_rows = keys.rows.data();
    run.value_rows = values.rows.data();
    run.num_keys = count;
    run.visible = visible;
    run.output = outputs_ + state * output_stride_;
    run.largest = largest_ + state;
    run.sum = sums_ + state;
    decode_run(run, workspace);
  }

  // The splits of a row, one after another.
  void join(int64_t group, int64_t row, float* joined) const {
    const int64_t batch = group / key_heads_, splits = num_splits(batch);
    const int64_t first = state_of(batch, group % key_heads_, 0, row);
    float largest = kNegativeInfinity, sum = 0;
    for (int64_t s = 0; s < splits; ++s) largest = std::max(largest, largest_[first + s * num_rows_]);
    const float reference = largest == kNegativeInfinity ? 0.0f : largest;
    std::fill_n(joined, output_stride_, 0.0f);
    for (int64_t s = 0; s < splits; ++s) {
      const int64_t state = first + s * num_rows_;
      const float factor = std::exp2(largest_[state] - reference);
      const float* part = outputs_ + state * output_stride_;
      sum += factor * sums_[state];
      for (int64_t i = 0; i < output_stride_; ++i) joined[i] += factor * part[i];
    }
    const float scale = sum == 0 ? 0.0f : 1 / sum;
    for (int64_t i = 0; i < output_stride_; ++i) joined[i] *= scale;
    const int64_t bytes = dtype_size_bytes(output_.dtype());
    store_row_from_f32(joined, output_.size(3), output_.dtype(),
                       output_.data_as<char>() + offset(output_, group, row) * bytes, output_.stride(3));
    if (!options_.log_sum_exp) return;
    const double log2_sum = static_cast<double>(largest) + std::log2(static_cast<double>(sum));
    options_.log_sum_exp->data_as<float>()[offset(*options_.log_sum_exp, group, row)] =
        sum == 0 ? kNegativeInfinity : static_cast<float>(log2_sum * std::numbers::ln2);
  }

  const TensorView& query_;
  const TensorView& keys_;
  const TensorView& values_;
  const TensorView* table_;  // null: a contiguous cache
  const DecodeAttentionOptions& options_;
  const TensorView& output_;
  int64_t key_heads_;
  int64_t group_;
  int64_t num_rows_;
  int64_t row_chunks_;
  int64_t query_stride_;
  int64_t output_stride_;
  bool is_copied_;
  std::vector<int64_t> first_split_;  // of each batch item, and the number of all
  float* packed_query_ = nullptr;
  float* outputs_ = nullptr;
  float* largest_ = nullptr;
  float* sums_ = nullptr;
};

}  // namespace

Status decode_attention(const TensorView& query, const TensorView& keys, const TensorView& values,
                        const DecodeAttentionOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_decode_arguments(query, keys, values, options, output));
  if (output.num_elements() == 0) return ok_status();
  return Decode(query, keys, values, nullptr, options, output).run();
}

Status paged_decode_attention(const TensorView& query, const PagedCache& cache, const DecodeAttentionOptions& options,
                              const TensorView& output) {
  QX_RETURN_IF_ERROR(check_paged_decode_arguments(query, cache, options, output));
  if (output.num_elements() == 0) return ok_status();
  return Decode(query, cache.keys, cache.values, &cache.block_table, options, output).run();
}

}  // namespace qx::kernels
