// Token by token: `prefill` reads the prompt, `decode` each token that was chosen.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/lite/generation/sampler.h"
#include "quincunx/lite/session.h"

namespace qx::lite {

struct GenerateOptions {
  SamplingOptions sampling = {};
  // At least 1.
  int64_t max_tokens = 128;
  // Generation ends before any of them.
  std::vector<int32_t> stop_tokens = {};
  // Read before each token and inside of it: ABORTED.
  const std::atomic<bool>* cancel = nullptr;
  // Likewise: DEADLINE_EXCEEDED.
  std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt;
};

// Why a generation ended: a stop token came, there are max_tokens, the caches are full, or the caller had enough.
enum class StopReason { kStopToken, kMaxTokens, kFullCache, kCallback };

// "stop_token", "max_tokens", "full_cache" or "callback".
std::string_view stop_reason_name(StopReason reason);

struct Generation {
  std::vector<int32_t> tokens;
  StopReason stop_reason = StopReason::kMaxTokens;
  int64_t num_prompt_tokens = 0;
  int64_t prefill_ns = 0;
  int64_t decode_ns = 0;
};

// Sees each token as soon as it is chosen; false ends the generation after it.
using TokenCallback = std::function<bool(int32_t token)>;

// That `session` has the methods `prefill` and `decode` of docs/lite.md. The error says which is missing or different.
Status check_decoder(const Session& session);

// Tokens that the caches of `session`, which check_decoder() accepts, have room for.
int64_t decoder_capacity(const Session& session);

// The tokens after `prompt`, which is not empty. What an earlier call left in the caches does not matter.
Result<Generation> generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
                            const TokenCallback& on_token = nullptr);

}  // namespace qx::lite
