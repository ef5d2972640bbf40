#include "quincunx/kernels/attention/sequences.h"

#include <string>
#include <string_view>

#include "quincunx/kernels/convert/argument_checks.h"

namespace qx::kernels {
namespace {

Status check_starts(std::string_view name, std::span<const int64_t> starts, int64_t length) {
  const std::string prefix(name);
  if (starts.empty() || starts.front() != 0 || starts.back() != length) {
    return invalid_argument(prefix + ": expected numbers from 0 to the " + std::to_string(length) +
                            " rows of the packed tensor, got " + std::to_string(starts.size()) + " numbers" +
                            (starts.empty()
                                 ? std::string()
                                 : " from " + std::to_string(starts.front()) + " to " + std::to_string(starts.back())));
  }
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i - 1] <= starts[i]) continue;
    return invalid_argument(prefix + "[" + std::to_string(i) + "]: expected " + std::to_string(starts[i - 1]) +
                            " or more, the start before it, got " + std::to_string(starts[i]));
  }
  return ok_status();
}

}  // namespace

std::vector<Sequence> sequences_of_batch(const TensorView& query, const TensorView& key,
                                         std::span<const int64_t> key_lengths) {
  std::vector<Sequence> sequences(static_cast<size_t>(query.size(0)));
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].batch = static_cast<int64_t>(i);
    sequences[i].num_queries = query.size(2);
    sequences[i].num_keys = key_lengths.empty() ? key.size(2) : key_lengths[i];
    sequences[i].num_padding = key.size(2) - sequences[i].num_keys;
    sequences[i].diagonal = 1 + key.size(2) - query.size(2);
  }
  return sequences;
}

std::vector<Sequence> sequences_of_starts(std::span<const int64_t> query_starts, std::span<const int64_t> key_starts) {
  std::vector<Sequence> sequences(query_starts.size() - 1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].first_query = query_starts[i];
    sequences[i].num_queries = query_starts[i + 1] - query_starts[i];
    sequences[i].first_key = key_starts[i];
    sequences[i].num_keys = key_starts[i + 1] - key_starts[i];
    sequences[i].diagonal = 1 + sequences[i].num_keys - sequences[i].num_queries;
  }
  return sequences;
}

Status check_sequence_starts(std::span<const int64_t> query_starts, std::span<const int64_t> key_starts,
                             const TensorView& query, const TensorView& key) {
  QX_RETURN_IF_ERROR(check_starts("query_starts", query_starts, query.size(2)));
  QX_RETURN_IF_ERROR(check_starts("key_starts", key_starts, key.size(2)));
  if (query_starts.size() == key_starts.size()) return ok_status();
  return invalid_argument("key_starts: expected as many numbers as query_starts, " +
                          std::to_string(query_starts.size()) + ", got " + std::to_string(key_starts.size()));
}

Result<AttentionOptions> packed_attention_options(const VariableLengthOptions& options) {
  AttentionOptions result;
  result.scale = options.scale;
  result.causal = options.causal;
  if (options.log_sum_exp) {
    QX_RETURN_IF_ERROR(check_rank("log_sum_exp", *options.log_sum_exp, 2));
    result.log_sum_exp = with_one_batch_item(*options.log_sum_exp);
  }
  return result;
}

TensorView by_heads(const TensorView& tensor) {
  const int64_t shape[] = {1, tensor.size(1), tensor.size(0), tensor.size(2)};
  const int64_t strides[] = {0, tensor.stride(1), tensor.stride(0), tensor.stride(2)};
  return TensorView::strided(tensor.data(), tensor.dtype(), shape, strides).value();
}

TensorView with_one_batch_item(const TensorView& tensor) {
  const int64_t shape[] = {1, tensor.size(0), tensor.size(1)};
  const int64_t strides[] = {0, tensor.stride(0), tensor.stride(1)};
  return TensorView::strided(tensor.data(), tensor.dtype(), shape, strides).value();
}

}  // namespace qx::kernels
