#include "quincunx/kernels/attention/attention_arguments.h"

#include <cmath>
#include <string>

#include "quincunx/kernels/attention/attention_mask.h"
#include "quincunx/kernels/convert/argument_checks.h"

namespace qx::kernels {
namespace {

std::string text(const TensorView& view) { return view.to_string(); }

}  // namespace

Status check_head_dim(std::string_view name, const TensorView& view) {
  if (view.size(3) >= 1 && view.size(3) <= kMaxAttentionHeadDim) return ok_status();
  return invalid_argument(std::string(name) + ": expected a head size (last dimension) of 1 to " +
                          std::to_string(kMaxAttentionHeadDim) + ", got " + text(view));
}

Status check_attention_shapes(NamedView named_query, NamedView named_key, NamedView named_value,
                              const TensorView& output) {
  const TensorView &query = *named_query.second, &key = *named_key.second, &value = *named_value.second;
  const std::string of_query(named_query.first), of_key(named_key.first), of_value(named_value.first);
  QX_RETURN_IF_ERROR(check_head_dim(of_query, query));
  QX_RETURN_IF_ERROR(check_head_dim(of_value, value));
  if (key.size(0) != query.size(0) || key.size(3) != query.size(3)) {
    return invalid_argument(of_key + ": expected the batch and head size of " + of_query + " " + text(query) +
                            ", got " + text(key));
  }
  if (key.size(1) == 0 ? query.size(1) != 0 : query.size(1) % key.size(1) != 0) {
    return invalid_argument(of_key + ": expected a number of heads (dimension 1) that divides that of " + of_query +
                            " " + text(query) + ", got " + text(key));
  }
  for (int i = 0; i < 3; ++i) {
    if (value.size(i) != key.size(i)) {
      return invalid_argument(of_value + ": expected the batch, heads and length of " + of_key + " " + text(key) +
                              ", got " + text(value));
    }
    if (output.size(i) != query.size(i) || output.size(3) != value.size(3)) {
      return invalid_argument("output: expected the batch, heads and length of " + of_query + " " + text(query) +
                              " and the head size of " + of_value + " " + text(value) + ", got " + text(output));
    }
  }
  return ok_status();
}

Status check_log_sum_exp(const TensorView& query, const TensorView& lse, std::initializer_list<NamedView> others) {
  QX_RETURN_IF_ERROR(check_float32("log_sum_exp", lse));
  QX_RETURN_IF_ERROR(check_rank("log_sum_exp", lse, 3));
  for (int i = 0; i < 3; ++i) {
    if (lse.size(i) == query.size(i)) continue;
    return invalid_argument("log_sum_exp: expected the batch, heads and length of query " + text(query) + ", got " +
                            text(lse));
  }
  return check_output("log_sum_exp", lse, others);
}

Status check_attention_scale(std::optional<float> scale) {
  if (!scale || std::isfinite(*scale)) return ok_status();
  return invalid_argument("scale: expected a finite number, got " + std::to_string(*scale));
}

Status check_key_lengths(std::span<const int64_t> lengths, int64_t batch, int64_t num_keys) {
  if (!lengths.empty() && static_cast<int64_t>(lengths.size()) != batch) {
    return invalid_argument("key_lengths: expected one for each of the " + std::to_string(batch) +
                            " batch items, got " + std::to_string(lengths.size()));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 0 && lengths[i] <= num_keys) continue;
    return invalid_argument("key_lengths[" + std::to_string(i) + "]: expected 0 to the " + std::to_string(num_keys) +
                            " keys, got " + std::to_string(lengths[i]));
  }
  return ok_status();
}

Status check_output_memory(std::string_view name, const TensorView& output, std::initializer_list<NamedView> inputs) {
  QX_RETURN_IF_ERROR(check_output(name, output, inputs));
  for (const auto& [input_name, view] : inputs) {
    if (output.num_elements() != 0 && output.data() == view->data()) {
      return invalid_argument(std::string(name) + ": is the same memory as " + std::string(input_name));
    }
  }
  return ok_status();
}

Status check_attention_dtypes(const TensorView& query, const TensorView& key, const TensorView& value,
                              const TensorView& output, int rank) {
  for (const auto& [name, view] :
       {NamedView{"query", &query}, NamedView{"key", &key}, NamedView{"value", &value}, NamedView{"output", &output}}) {
    QX_RETURN_IF_ERROR(check_kernel_float(name, *view));
    QX_RETURN_IF_ERROR(check_same_dtype(name, *view, "query", query));
    QX_RETURN_IF_ERROR(check_rank(name, *view, rank));
  }
  return ok_status();
}

Status check_attention_arguments(const TensorView& query, const TensorView& key, const TensorView& value,
                                 const AttentionOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_attention_dtypes(query, key, value, output, 4));
  QX_RETURN_IF_ERROR(check_attention_shapes({"query", &query}, {"key", &key}, {"value", &value}, output));
  QX_RETURN_IF_ERROR(check_attention_scale(options.scale));
  QX_RETURN_IF_ERROR(check_key_lengths(options.key_lengths, query.size(0), key.size(2)));
  if (options.attn_mask) QX_RETURN_IF_ERROR(check_attention_mask(query, key, *options.attn_mask));
  QX_RETURN_IF_ERROR(check_output_memory("output", output, {{"query", &query}, {"key", &key}, {"value", &value}}));
  if (!options.log_sum_exp) return ok_status();
  return check_log_sum_exp(query, *options.log_sum_exp,
                           {{"query", &query}, {"key", &key}, {"value", &value}, {"output", &output}});
}

}  // namespace qx::kernels
