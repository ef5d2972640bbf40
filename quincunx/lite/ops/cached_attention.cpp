// What a decoder does with its key-value cache.
#include <string>
#include <vector>

#include "quincunx/kernels/attention/attention.h"
#include "quincunx/kernels/attention/decode_attention.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// Up to so many queries the cache is read where it lies; more of them are worth a packed copy of it.
constexpr int64_t kMaxDecodeQueries = 16;

Result<int64_t> position_of(const TensorView& tensor) {
  if (tensor.num_elements() != 1 || compute_type(tensor.dtype()) != ComputeType::kInteger) {
    return invalid_argument("position: expected one integer, got " + tensor.to_string());
  }
  int64_t value = 0;
  const int64_t position = *load_row(tensor.dtype(), tensor.data(), 1, 1, &value);
  if (position < 0) return invalid_argument("position: expected 0 or more, got " + std::to_string(position));
  return position;
}

Status check_fit(const char* name, int64_t position, int64_t rows, int64_t capacity) {
  if (position <= capacity - rows) return ok_status();
  return invalid_argument(std::string(name) + ": position " + std::to_string(position) + " and " +
                          std::to_string(rows) + " new rows exceed the capacity of " + std::to_string(capacity));
}

// qx.kv_append(cache [B, H, C, K], new [B, H, L, K], position)
Status run_append(const Call& call) {
  const TensorView& cache = call.tensor(0);
  const TensorView& added = call.tensor(1);
  const TensorView& result = call.result();
  if (cache.num_dims() != 4 || added.num_dims() != 4 || result.num_dims() != 4) {
    return invalid_argument("expected four dimensions, got " + cache.to_string() + " and " + added.to_string());
  }
  QX_ASSIGN_OR_RETURN(const int64_t position, position_of(call.tensor(2)));
  QX_RETURN_IF_ERROR(check_fit("qx.kv_append", position, added.size(2), cache.size(2)));
  if (result.data() != cache.data()) QX_RETURN_IF_ERROR(copy_elements(cache, result));
  QX_ASSIGN_OR_RETURN(const TensorView rows, result.slice(2, position, position + added.size(2)));
  return convert_elements(added, rows);
}

// qx.attention_cached(query [B, Hq, L, K], keys [B, H, C, K], values, position, scale)
Status run_attention_cached(const Call& call) {
  const TensorView& query = call.tensor(0);
  if (query.num_dims() != 4 || call.tensor(1).num_dims() != 4 || call.tensor(2).num_dims() != 4) {
    return invalid_argument("expected four dimensions, got " + query.to_string() + ", " + call.tensor(1).to_string() +
                            " and " + call.tensor(2).to_string());
  }
  QX_ASSIGN_OR_RETURN(const int64_t position, position_of(call.tensor(3)));
  for (const size_t i : {1, 2}) {
    QX_RETURN_IF_ERROR(check_fit("qx.attention_cached", position, query.size(2), call.tensor(i).size(2)));
  }
  const int64_t length = position + query.size(2);
  // Only the rows that mean something; the last query sees all of them, which is what `causal` means to the kernel.
  QX_ASSIGN_OR_RETURN(const TensorView keys, call.tensor(1).slice(2, 0, length));
  QX_ASSIGN_OR_RETURN(const TensorView values, call.tensor(2).slice(2, 0, length));
  if (query.size(2) <= kMaxDecodeQueries) {
    kernels::DecodeAttentionOptions options;
    if (call.has(4)) options.scale = static_cast<float>(call.real(4));
    return kernels::decode_attention(query, keys, values, options, call.result());
  }
  kernels::AttentionOptions options;
  if (call.has(4)) options.scale = static_cast<float>(call.real(4));
  options.causal = true;
  return kernels::attention(query, keys, values, options, call.result());
}

constexpr Operator kOperators[] = {
    {.name = "qx.kv_append", .signature = "TTT", .run = run_append, .updates = true},
    {.name = "qx.attention_cached", .signature = "TTTTg", .run = run_attention_cached},
};

}  // namespace

std::span<const Operator> cached_attention_operators() { return kOperators; }

}  // namespace qx::lite
