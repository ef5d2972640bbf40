#include "quincunx/lite/generation/embedder.h"

#include <algorithm>
#include <string>
#include <utility>

namespace qx::lite {
namespace {

constexpr char kMethod[] = "encode";

bool is_token_table(const graph::TensorType& type) {
  return type.dtype == DType::kInt64 && type.shape.size() == 2 && !type.shape[1].is_known();
}

Result<size_t> longest(const Session& session, std::span<const std::vector<int32_t>> texts) {
  if (texts.empty()) return invalid_argument("texts is empty, expected at least one");
  size_t length = 0;
  const int64_t capacity = encoder_capacity(session);
  for (size_t index = 0; index < texts.size(); ++index) {
    const size_t size = texts[index].size();
    if (size == 0 || static_cast<int64_t>(size) > capacity) {
      return invalid_argument("texts[" + std::to_string(index) + "] has " + std::to_string(size) +
                              " tokens, expected 1 to " + std::to_string(capacity));
    }
    length = std::max(length, size);
  }
  return length;
}

}  // namespace

Status check_encoder(const Session& session) {
  QX_ASSIGN_OR_RETURN(const MethodInfo* method, session.method(kMethod));
  const bool fits = method->inputs.size() == 2 && method->outputs.size() == 1 &&
                    is_token_table(method->inputs[0].type) && is_token_table(method->inputs[1].type) &&
                    method->outputs[0].type.dtype == DType::kFloat32 && method->outputs[0].type.shape.size() == 2;
  if (fits) return ok_status();
  return invalid_argument(
      "method 'encode' does not map tokens and mask, int64[batch, length], to float32[batch, width]");
}

int64_t encoder_capacity(const Session& session) {
  const MethodInfo* method = session.method(kMethod).value();
  const auto symbol = static_cast<size_t>(method->inputs[0].type.shape[1].symbol);
  return method->symbols[symbol].max;
}

Result<Tensor> embed(Session& session, std::span<const std::vector<int32_t>> texts, int32_t padding_token,
                     const RunOptions& options) {
  QX_RETURN_IF_ERROR(check_encoder(session));
  QX_ASSIGN_OR_RETURN(const size_t length, longest(session, texts));
  std::vector<int64_t> tokens(texts.size() * length, padding_token);
  std::vector<int64_t> mask(texts.size() * length, 0);
  for (size_t index = 0; index < texts.size(); ++index) {
    const auto start = static_cast<std::ptrdiff_t>(index * length);
    std::copy(texts[index].begin(), texts[index].end(), tokens.begin() + start);
    std::fill_n(mask.begin() + start, texts[index].size(), 1);
  }
  const int64_t shape[] = {static_cast<int64_t>(texts.size()), static_cast<int64_t>(length)};
  QX_ASSIGN_OR_RETURN(const TensorView token_view, TensorView::contiguous(tokens.data(), DType::kInt64, shape));
  QX_ASSIGN_OR_RETURN(const TensorView mask_view, TensorView::contiguous(mask.data(), DType::kInt64, shape));
  const TensorView inputs[] = {token_view, mask_view};
  QX_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, session.run(kMethod, inputs, options));
  return std::move(outputs[0]);
}

}  // namespace qx::lite
