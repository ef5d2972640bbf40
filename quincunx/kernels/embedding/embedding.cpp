#include "quincunx/kernels/embedding/embedding.h"

#include <hwy/cache_control.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/reduce/reduce.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

bool is_index(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

Status check_table(const TensorView& table) {
  QX_RETURN_IF_ERROR(check_kernel_float("table", table));
  return check_rank("table", table, 2);
}

// The elements of an index tensor, row by row: those of dense int64 where they lie, others in `copies`.
Result<std::span<const int64_t>> read_indices(std::string_view name, const TensorView& indices,
                                              std::vector<int64_t>& copies) {
  if (!is_index(indices.dtype())) {
    return type_error(std::string(name) + ": expected int64 or int32, got " + indices.to_string());
  }
  if (indices.data() == nullptr && indices.num_elements() != 0) {
    return invalid_argument(std::string(name) + ": null data for " + indices.to_string());
  }
  const auto count = static_cast<size_t>(indices.num_elements());
  if (indices.dtype() == DType::kInt64 && indices.is_contiguous()) {
    return std::span<const int64_t>(indices.data_as<int64_t>(), count);
  }
  copies.reserve(count);
  const RowOffsets rows(indices);
  for (int64_t r = 0; indices.num_elements() != 0 && r < rows.num_rows(); ++r) {
    for (int64_t i = 0; i < rows.row_length(); ++i) {
      const int64_t at = rows.offset(r) + i * rows.row_stride();
      copies.push_back(indices.dtype() == DType::kInt64 ? indices.data_as<int64_t>()[at]
                                                        : indices.data_as<int32_t>()[at]);
    }
  }
  return std::span<const int64_t>(copies);
}

Result<std::span<const int64_t>> read_rows(const TensorView& indices, int64_t table_rows,
                                           std::vector<int64_t>& copies) {
  QX_ASSIGN_OR_RETURN(const auto rows, read_indices("indices", indices, copies));
  // Without an exit, so that the loop is one of vectors; which index is wrong is looked for afterwards.
  bool right = true;
  for (const int64_t row : rows) right &= static_cast<uint64_t>(row) < static_cast<uint64_t>(table_rows);
  for (size_t i = 0; !right && i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= table_rows) {
      return invalid_argument("indices: expected 0 to " + std::to_string(table_rows - 1) + ", the rows of table, got " +
                              std::to_string(rows[i]) + " at element " + std::to_string(i));
    }
  }
  return rows;
}

// Past the caches: `to` is aligned to 64 bytes and `bytes` a multiple of them. `later` is a row that is copied soon: a
// line of it is fetched with each line written, because the hardware does not foresee where it lies. Into L2, which has
// more misses in flight than L1: 1.4 times as fast.
void stream_row(char* to, const char* from, const char* later, int64_t bytes) {
#if defined(__SSE2__)
  for (int64_t i = 0; i < bytes; i += kStreamedAlignmentBytes) {
    __builtin_prefetch(later + i, 0, 2);
    for (int64_t k = i; k < i + kStreamedAlignmentBytes; k += 16) {
      const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), part);
    }
  }
#else
  for (int64_t i = 0; i < bytes; i += kStreamedAlignmentBytes) __builtin_prefetch(later + i, 0, 2);
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

// How many rows ahead rows are fetched.
constexpr int64_t kRowsAhead = 4;

class Table {
 public:
  explicit Table(const TensorView& view) : view_(view), bytes_(dtype_size_bytes(view.dtype())) {}

  int64_t width() const { return view_.size(1); }
  bool is_dense() const { return view_.stride(1) == 1 || width() == 1; }
  const char* row(int64_t index) const { return view_.data_as<char>() + index * view_.stride(0) * bytes_; }

  // Of a row of a result that is written past the caches.
  void stream(int64_t index, char* to, int64_t later) const {
    stream_row(to, row(index), row(later), width() * bytes_);
  }
  void copy(int64_t index, char* to, int64_t to_stride) const {
    if (is_dense() && to_stride == 1) {
      std::memcpy(to, row(index), static_cast<size_t>(width() * bytes_));
      return;
    }
    const int64_t step = view_.stride(1) * bytes_;
    for (int64_t d = 0; d < width(); ++d) {
      std::memcpy(to + d * to_stride * bytes_, row(index) + d * step, static_cast<size_t>(bytes_));
    }
  }
  void load(int64_t index, float* to) const {
    load_row_as_f32(view_.dtype(), row(index), view_.stride(1), width(), to);
  }

 private:
  const TensorView& view_;
  int64_t bytes_;
};

Status check_result(const TensorView& table, const TensorView& output, const TensorView& indices) {
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "table", table));
  return check_output("output", output, {{"table", &table}, {"indices", &indices}});
}

// In the order of the rows, in f32, rounded once. `sources` is memory that bags share.
void combine(const Table& table, std::span<const int64_t> rows, BagMode mode, const TensorView& output, int64_t bag,
             std::vector<const void*>& sources) {
  const DType dtype = output.dtype();
  const int64_t bytes = dtype_size_bytes(dtype), width = table.width(), stride = output.stride(1);
  char* to = output.data_as<char>() + bag * output.stride(0) * bytes;
  const ReduceKind kind = mode == BagMode::kMean && !rows.empty() ? ReduceKind::kAverage : ReduceKind::kSum;
  if (table.is_dense() && stride == 1 && !rows.empty() && rows.size() <= kMaxReduceSources) {
    sources.clear();
    for (const int64_t row : rows) sources.push_back(table.row(row));
    return reduce(kind, dtype, sources, width, to);
  }
  std::vector<float> sum(static_cast<size_t>(width), 0.0f), next(sum.size());
  for (const int64_t row : rows) {
    table.load(row, next.data());
    const void* both[] = {sum.data(), next.data()};
    reduce(ReduceKind::kSum, DType::kFloat32, both, width, sum.data());
  }
  if (kind == ReduceKind::kAverage) {
    for (float& value : sum) value /= static_cast<float>(rows.size());
  }
  store_row_from_f32(sum.data(), width, dtype, to, stride);
}

Status check_offsets(std::span<const int64_t> offsets, int64_t num_indices) {
  for (size_t b = 0; b < offsets.size(); ++b) {
    const int64_t least = b == 0 ? 0 : offsets[b - 1];
    const bool is_right = b == 0 ? offsets[b] == 0 : offsets[b] >= least && offsets[b] <= num_indices;
    if (is_right) continue;
    const std::string expected =
        b == 0 ? "0" : std::to_string(least) + " to " + std::to_string(num_indices) + ", the number of indices";
    return invalid_argument("offsets[" + std::to_string(b) + "]: expected " + expected + ", got " +
                            std::to_string(offsets[b]));
  }
  if (offsets.empty() && num_indices != 0) {
    return invalid_argument("offsets: expected a bag for the " + std::to_string(num_indices) + " indices, got none");
  }
  return ok_status();
}

}  // namespace

Status embedding(const TensorView& table, const TensorView& indices, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_table(table));
  std::vector<int64_t> copied_rows;
  QX_ASSIGN_OR_RETURN(const auto rows, read_rows(indices, table.size(0), copied_rows));
  QX_RETURN_IF_ERROR(check_result(table, output, indices));
  bool fits = output.num_dims() == indices.num_dims() + 1 && output.size(-1) == table.size(1);
  for (int i = 0; fits && i < indices.num_dims(); ++i) fits = output.size(i) == indices.size(i);
  if (!fits) {
    return invalid_argument("output: expected the shape of indices " + indices.to_string() + " and then " +
                            std::to_string(table.size(1)) + ", got " + output.to_string());
  }
  if (output.num_elements() == 0) return ok_status();
  const Table source(table);
  const RowOffsets to(output);
  const int64_t bytes = dtype_size_bytes(output.dtype());
  const bool stream =
      source.is_dense() && table.size(1) * bytes % kStreamedAlignmentBytes == 0 && writes_past_caches(output, false);
  parallel_for(0, to.num_rows(), std::max<int64_t>(1, kRowLoopGrain / table.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* row = output.data_as<char>() + to.offset(i) * bytes;
      if (stream) {
        source.stream(rows[static_cast<size_t>(i)], row, rows[static_cast<size_t>(std::min(i + kRowsAhead, end - 1))]);
        continue;
      }
      if (i + 1 < end) __builtin_prefetch(source.row(rows[static_cast<size_t>(i + 1)]));
      source.copy(rows[static_cast<size_t>(i)], row, to.row_stride());
    }
    if (stream) hwy::FlushStream();
  });
  return ok_status();
}

Status embedding_bag(const TensorView& table, const TensorView& indices, const TensorView& offsets, BagMode mode,
                     const TensorView& output) {
  QX_RETURN_IF_ERROR(check_table(table));
  if (mode != BagMode::kSum && mode != BagMode::kMean) {
    return invalid_argument("mode: expected a BagMode, got " + std::to_string(static_cast<int>(mode)));
  }
  QX_RETURN_IF_ERROR(check_rank("indices", indices, 1));
  std::vector<int64_t> copied_rows;
  QX_ASSIGN_OR_RETURN(const auto rows, read_rows(indices, table.size(0), copied_rows));
  QX_RETURN_IF_ERROR(check_rank("offsets", offsets, 1));
  std::vector<int64_t> copied_bounds;
  QX_ASSIGN_OR_RETURN(const auto bounds, read_indices("offsets", offsets, copied_bounds));
  QX_RETURN_IF_ERROR(check_offsets(bounds, indices.size(0)));
  QX_RETURN_IF_ERROR(check_result(table, output, indices));
  QX_RETURN_IF_ERROR(check_output("output", output, {{"offsets", &offsets}}));
  QX_RETURN_IF_ERROR(check_rank("output", output, 2));
  if (output.size(0) != offsets.size(0) || output.size(1) != table.size(1)) {
    return invalid_argument("output: expected [" + std::to_string(offsets.size(0)) + ", " +
                            std::to_string(table.size(1)) + "], bags and width of table, got " + output.to_string());
  }
  if (output.num_elements() == 0) return ok_status();
  const Table source(table);
  const int64_t work = std::max<int64_t>(1, indices.size(0) * table.size(1) / offsets.size(0));
  parallel_for(0, offsets.size(0), std::max<int64_t>(1, kRowLoopGrain / work), [&](int64_t begin, int64_t end) {
    std::vector<const void*> sources;
    sources.reserve(16);
    for (int64_t bag = begin; bag < end; ++bag) {
      const auto b = static_cast<size_t>(bag);
      const auto first = static_cast<size_t>(bounds[b]);
      const size_t last = b + 1 < bounds.size() ? static_cast<size_t>(bounds[b + 1]) : rows.size();
      combine(source, rows.subspan(first, last - first), mode, output, bag, sources);
    }
  });
  return ok_status();
}

}  // namespace qx::kernels
