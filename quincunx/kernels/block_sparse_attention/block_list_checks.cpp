#include "quincunx/kernels/block_sparse_attention/block_list_checks.h"

#include <string>
#include <vector>

namespace qx::kernels {
namespace {

Status check_int64(std::string_view name, const TensorView& view, const std::vector<int64_t>& shape) {
  bool fits = view.dtype() == DType::kInt64 && view.num_dims() == static_cast<int>(shape.size());
  std::string expected;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_any = shape[i] < 0;
    fits = fits && (is_any || view.size(static_cast<int>(i)) == shape[i]);
    expected += (i == 0 ? "" : ", ") + (is_any ? std::string("any") : std::to_string(shape[i]));
  }
  if (fits) return ok_status();
  return invalid_argument(std::string(name) + ": expected int64[" + expected + "] (batch, heads, query blocks), got " +
                          view.to_string());
}

std::string place(std::string_view name, int64_t batch, int64_t head, int64_t block) {
  return std::string(name) + "[" + std::to_string(batch) + ", " + std::to_string(head) + ", " + std::to_string(block);
}

Status check_list(const BlockSparseOptions& options, int64_t batch, int64_t head, int64_t block) {
  const TensorView& idx = options.select_idx;
  const TensorView& num = options.select_num_idx;
  const int64_t count = num.data_as<int64_t>()[batch * num.stride(0) + head * num.stride(1) + block * num.stride(2)];
  if (count < 0 || count > idx.size(3)) {
    return invalid_argument(place("select_num_idx", batch, head, block) + "]: expected 0 to the " +
                            std::to_string(idx.size(3)) + " entries of a list, got " + std::to_string(count));
  }
  // Lists of no room may have no memory either: the pointer is only moved where there is an entry.
  const int64_t first = batch * idx.stride(0) + head * idx.stride(1) + block * idx.stride(2);
  const auto num_blocks = static_cast<int64_t>(options.key_starts.size()) - 1;
  int64_t before = -1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t entry = idx.data_as<int64_t>()[first + i * idx.stride(3)];
    if (entry < 0 || entry >= num_blocks) {
      return invalid_argument(place("select_idx", batch, head, block) + ", " + std::to_string(i) +
                              "]: expected one of the " + std::to_string(num_blocks) + " key blocks, got " +
                              std::to_string(entry));
    }
    if (entry <= before) {
      return invalid_argument(place("select_idx", batch, head, block) + ", " + std::to_string(i) +
                              "]: expected rising indices without repetition, got " + std::to_string(entry) +
                              " after " + std::to_string(before));
    }
    before = entry;
  }
  return ok_status();
}

}  // namespace

Status check_block_starts(std::string_view name, std::span<const int64_t> starts, int64_t length) {
  bool rises = !starts.empty() && starts.front() == 0 && starts.back() == length;
  for (size_t i = 1; i < starts.size(); ++i) rises = rises && starts[i - 1] < starts[i];
  if (rises) return ok_status();
  return invalid_argument(
      std::string(name) + ": expected rising numbers from 0 to the length " + std::to_string(length) + ", got " +
      std::to_string(starts.size()) + " numbers" +
      (starts.empty() ? "" : " from " + std::to_string(starts.front()) + " to " + std::to_string(starts.back())));
}

Status check_order(std::string_view name, std::span<const int64_t> order, int64_t length) {
  if (order.empty()) return ok_status();
  std::vector<bool> seen(static_cast<size_t>(length));
  bool is_permutation = static_cast<int64_t>(order.size()) == length;
  for (const int64_t row : order) {
    is_permutation = is_permutation && row >= 0 && row < length && !seen[static_cast<size_t>(row)];
    if (!is_permutation) {
      return invalid_argument(std::string(name) + ": expected a permutation of the " + std::to_string(length) +
                              " rows, got " + std::to_string(order.size()) + " indices with " + std::to_string(row) +
                              " out of range or repeated");
    }
    seen[static_cast<size_t>(row)] = true;
  }
  return ok_status();
}

Status check_block_lists(const TensorView& query, const TensorView& key, const BlockSparseOptions& options) {
  QX_RETURN_IF_ERROR(check_block_starts("query_starts", options.query_starts, query.size(2)));
  QX_RETURN_IF_ERROR(check_block_starts("key_starts", options.key_starts, key.size(2)));
  QX_RETURN_IF_ERROR(check_order("query_order", options.query_order, query.size(2)));
  QX_RETURN_IF_ERROR(check_order("key_order", options.key_order, key.size(2)));
  const bool has_order = !options.query_order.empty() || !options.key_order.empty();
  if (has_order && (options.attention.causal || !options.attention.key_lengths.empty())) {
    return invalid_argument(options.attention.causal
                                ? "causal: expected false together with query_order or key_order, got true"
                                : "key_lengths: expected none together with query_order or key_order, got some");
  }
  const auto blocks = static_cast<int64_t>(options.query_starts.size()) - 1;
  QX_RETURN_IF_ERROR(check_int64("select_idx", options.select_idx, {query.size(0), query.size(1), blocks, -1}));
  QX_RETURN_IF_ERROR(check_int64("select_num_idx", options.select_num_idx, {query.size(0), query.size(1), blocks}));
  for (int64_t batch = 0; batch < query.size(0); ++batch) {
    for (int64_t head = 0; head < query.size(1); ++head) {
      for (int64_t block = 0; block < blocks; ++block) QX_RETURN_IF_ERROR(check_list(options, batch, head, block));
    }
  }
  return ok_status();
}

}  // namespace qx::kernels
