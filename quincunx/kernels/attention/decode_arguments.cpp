#include "quincunx/kernels/attention/decode_arguments.h"

#include <string>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/convert/argument_checks.h"

namespace qx::kernels {
namespace {

Status check_floats(const TensorView& query, const TensorView& keys, const TensorView& values,
                    const TensorView& output) {
  for (const auto& [name, view] : {NamedView{"query", &query}, NamedView{"keys", &keys}, NamedView{"values", &values},
                                   NamedView{"output", &output}}) {
    QX_RETURN_IF_ERROR(check_kernel_float(name, *view));
    QX_RETURN_IF_ERROR(check_rank(name, *view, 4));
  }
  QX_RETURN_IF_ERROR(check_same_dtype("values", values, "keys", keys));
  return check_same_dtype("output", output, "query", query);
}

// What both forms of the cache share; `capacity` is the number of keys that an item has room for.
Status check_lengths_and_outputs(const TensorView& query, const TensorView& keys, const TensorView& values,
                                 const DecodeAttentionOptions& options, const TensorView& output, int64_t capacity) {
  QX_RETURN_IF_ERROR(check_attention_scale(options.scale));
  QX_RETURN_IF_ERROR(check_key_lengths(options.key_lengths, query.size(0), capacity));
  QX_RETURN_IF_ERROR(check_output_memory("output", output, {{"query", &query}, {"keys", &keys}, {"values", &values}}));
  if (!options.log_sum_exp) return ok_status();
  return check_log_sum_exp(query, *options.log_sum_exp,
                           {{"query", &query}, {"keys", &keys}, {"values", &values}, {"output", &output}});
}

Status check_pages(const TensorView& query, const PagedCache& cache, const TensorView& output) {
  const std::string got_keys = ", got " + cache.keys.to_string(), got_values = ", got " + cache.values.to_string();
  QX_RETURN_IF_ERROR(check_head_dim("query", query));
  QX_RETURN_IF_ERROR(check_head_dim("values", cache.values));
  if (cache.keys.size(3) != query.size(3)) {
    return invalid_argument("keys: expected the head size of query " + query.to_string() + got_keys);
  }
  const int64_t heads = cache.keys.size(1);
  if (heads == 0 ? query.size(1) != 0 : query.size(1) % heads != 0) {
    return invalid_argument("keys: expected a number of heads (dimension 1) that divides that of query " +
                            query.to_string() + got_keys);
  }
  if (cache.keys.size(2) == 0) return invalid_argument("keys: expected pages of one token at least" + got_keys);
  for (int i = 0; i < 3; ++i) {
    if (cache.values.size(i) == cache.keys.size(i)) continue;
    return invalid_argument("values: expected the pages, heads and page size of keys " + cache.keys.to_string() +
                            got_values);
  }
  for (int i = 0; i < 4; ++i) {
    if (output.size(i) == (i < 3 ? query : cache.values).size(i)) continue;
    return invalid_argument("output: expected the batch, heads and length of query " + query.to_string() +
                            " and the head size of values " + cache.values.to_string() + ", got " + output.to_string());
  }
  return ok_status();
}

Status check_table_shape(const TensorView& query, const TensorView& table) {
  if (table.dtype() != DType::kInt32 && table.dtype() != DType::kInt64) {
    return type_error("block_table: expected int32 or int64, got " + table.to_string());
  }
  if (table.num_dims() != 2 || table.size(0) != query.size(0)) {
    return invalid_argument("block_table: expected a row for each of the " + std::to_string(query.size(0)) +
                            " batch items, got " + table.to_string());
  }
  return ok_status();
}

Status check_table_entries(const PagedCache& cache, std::span<const int64_t> lengths) {
  const int64_t page_size = cache.keys.size(2), num_pages = cache.keys.size(0);
  for (size_t batch = 0; batch < lengths.size(); ++batch) {
    for (int64_t i = 0; i * page_size < lengths[batch]; ++i) {
      const int64_t page = table_entry(cache.block_table, static_cast<int64_t>(batch), i);
      if (page >= 0 && page < num_pages) continue;
      return invalid_argument("block_table[" + std::to_string(batch) + ", " + std::to_string(i) +
                              "]: expected one of the " + std::to_string(num_pages) + " pages, got " +
                              std::to_string(page));
    }
  }
  return ok_status();
}

}  // namespace

Status check_decode_arguments(const TensorView& query, const TensorView& keys, const TensorView& values,
                              const DecodeAttentionOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_floats(query, keys, values, output));
  QX_RETURN_IF_ERROR(check_attention_shapes({"query", &query}, {"keys", &keys}, {"values", &values}, output));
  return check_lengths_and_outputs(query, keys, values, options, output, keys.size(2));
}

Status check_paged_decode_arguments(const TensorView& query, const PagedCache& cache,
                                    const DecodeAttentionOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_floats(query, cache.keys, cache.values, output));
  QX_RETURN_IF_ERROR(check_pages(query, cache, output));
  QX_RETURN_IF_ERROR(check_table_shape(query, cache.block_table));
  int64_t capacity = 0;
  if (__builtin_mul_overflow(cache.block_table.size(1), cache.keys.size(2), &capacity)) {
    return invalid_argument("block_table: its columns times the page size overflow 64 bits: " +
                            cache.block_table.to_string() + " and " + cache.keys.to_string());
  }
  if (options.key_lengths.empty() && query.size(0) != 0) {
    return invalid_argument("key_lengths: expected one for each of the " + std::to_string(query.size(0)) +
                            " batch items of a paged cache, got none");
  }
  QX_RETURN_IF_ERROR(check_lengths_and_outputs(query, cache.keys, cache.values, options, output, capacity));
  return check_table_entries(cache, options.key_lengths);
}

}  // namespace qx::kernels
