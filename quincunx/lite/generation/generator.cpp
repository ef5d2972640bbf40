#include "quincunx/lite/generation/generator.h"

#include <algorithm>
#include <string>

namespace qx::lite {
namespace {

using Clock = std::chrono::steady_clock;

Status check_method(const Session& session, std::string_view name) {
  QX_ASSIGN_OR_RETURN(const MethodInfo* method, session.method(name));
  const auto fail = [&](const std::string& what) {
    return invalid_argument("method '" + std::string(name) + "' " + what +
                            "; convert the model with quincunx.lite.convert(..., kind=\"decoder\")");
  };
  if (method->inputs.size() != 2 || method->outputs.size() != 1)
    return fail("does not map tokens and position to logits");
  const graph::TensorType& tokens = method->inputs[0].type;
  const graph::TensorType& position = method->inputs[1].type;
  const graph::TensorType& logits = method->outputs[0].type;
  if (tokens.dtype != DType::kInt64 || tokens.shape.size() != 2) return fail("has tokens other than int64[1, length]");
  if (position.dtype != DType::kInt64 || !position.shape.empty()) return fail("has a position that is no int64[]");
  if (logits.dtype != DType::kFloat32 || logits.shape.size() != 3 || !logits.shape[2].is_known()) {
    return fail("has logits other than float32[1, 1, vocabulary]");
  }
  return ok_status();
}

int64_t vocabulary_size(const Session& session) {
  return session.method("decode").value()->outputs[0].type.shape[2].value;
}

Status check_arguments(const Session& session, std::span<const int32_t> prompt, const GenerateOptions& options) {
  QX_RETURN_IF_ERROR(check_decoder(session));
  if (options.max_tokens < 1) {
    return invalid_argument("max_tokens is " + std::to_string(options.max_tokens) + ", expected at least 1");
  }
  if (prompt.empty()) return invalid_argument("prompt has no tokens, expected at least one");
  const int64_t capacity = decoder_capacity(session);
  if (static_cast<int64_t>(prompt.size()) > capacity) {
    return invalid_argument("prompt has " + std::to_string(prompt.size()) + " tokens, expected at most " +
                            std::to_string(capacity) + ", which the model was converted for (max_length)");
  }
  const int64_t size = vocabulary_size(session);
  for (size_t index = 0; index < prompt.size(); ++index) {
    if (prompt[index] < 0 || prompt[index] >= size) {
      return invalid_argument("prompt[" + std::to_string(index) + "] is " + std::to_string(prompt[index]) +
                              ", expected 0 to " + std::to_string(size - 1));
    }
  }
  return ok_status();
}

// Runs the methods at increasing positions.
class Decoder {
 public:
  Decoder(Session& session, const GenerateOptions& options) : session_(session) {
    run_.cancel = options.cancel;
    run_.deadline = options.deadline;
  }

  int64_t position() const { return position_; }

  // The logits after `tokens`, until the next call.
  Result<std::span<const float>> run(std::string_view method, std::vector<int64_t> tokens) {
    const int64_t length[] = {1, static_cast<int64_t>(tokens.size())};
    QX_ASSIGN_OR_RETURN(const TensorView token_view, TensorView::contiguous(tokens.data(), DType::kInt64, length));
    QX_ASSIGN_OR_RETURN(const TensorView position_view, TensorView::contiguous(&position_, DType::kInt64, {}));
    const TensorView inputs[] = {token_view, position_view};
    QX_ASSIGN_OR_RETURN(outputs_, session_.run(method, inputs, run_));
    position_ += length[1];
    const TensorView& logits = outputs_[0].view;
    return std::span<const float>(static_cast<const float*>(logits.data()), static_cast<size_t>(logits.num_elements()));
  }

 private:
  Session& session_;
  RunOptions run_;
  std::vector<Tensor> outputs_;
  int64_t position_ = 0;
};

int64_t elapsed_ns(Clock::time_point since) { return std::chrono::nanoseconds(Clock::now() - since).count(); }

// Whether the generation ends with `token`, and why.
std::optional<StopReason> take(int32_t token, const GenerateOptions& options, const TokenCallback& on_token,
                               Generation& generation) {
  if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end()) {
    return StopReason::kStopToken;
  }
  generation.tokens.push_back(token);
  if (on_token != nullptr && !on_token(token)) return StopReason::kCallback;
  if (static_cast<int64_t>(generation.tokens.size()) == options.max_tokens) return StopReason::kMaxTokens;
  return std::nullopt;
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken: return "stop_token";
    case StopReason::kMaxTokens: return "max_tokens";
    case StopReason::kFullCache: return "full_cache";
    case StopReason::kCallback: return "callback";
  }
  return "unknown";
}

Status check_decoder(const Session& session) {
  QX_RETURN_IF_ERROR(check_method(session, "prefill"));
  QX_RETURN_IF_ERROR(check_method(session, "decode"));
  const MethodInfo* prefill = session.method("prefill").value();
  if (prefill->symbols.size() == 1) return ok_status();
  return invalid_argument("method 'prefill' has " + std::to_string(prefill->symbols.size()) +
                          " symbols, expected the number of tokens alone");
}

int64_t decoder_capacity(const Session& session) { return session.method("prefill").value()->symbols[0].max; }

Result<Generation> generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
                            const TokenCallback& on_token) {
  QX_RETURN_IF_ERROR(check_arguments(session, prompt, options));
  QX_ASSIGN_OR_RETURN(Sampler sampler, Sampler::make(options.sampling));
  Decoder decoder(session, options);
  Generation generation;
  generation.num_prompt_tokens = static_cast<int64_t>(prompt.size());
  Clock::time_point start = Clock::now();
  QX_ASSIGN_OR_RETURN(std::span<const float> logits, decoder.run("prefill", {prompt.begin(), prompt.end()}));
  generation.prefill_ns = elapsed_ns(start);
  start = Clock::now();
  const int64_t capacity = decoder_capacity(session);
  while (true) {
    QX_ASSIGN_OR_RETURN(const int32_t token, sampler.next(logits));
    const std::optional<StopReason> stop = take(token, options, on_token, generation);
    if (stop.has_value() || decoder.position() == capacity) {
      generation.stop_reason = stop.value_or(StopReason::kFullCache);
      break;
    }
    QX_ASSIGN_OR_RETURN(logits, decoder.run("decode", {token}));
  }
  generation.decode_ns = elapsed_ns(start);
  return generation;
}

}  // namespace qx::lite
