#include "quincunx/kernels/sampling/sampling_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace qx::kernels {
namespace {

void normalize(std::vector<TokenProbability>& tokens) {
  double sum = 0;
  for (const TokenProbability& token : tokens) sum += token.probability;
  for (TokenProbability& token : tokens) token.probability /= sum;
}

}  // namespace

std::vector<TokenProbability> kept_tokens_reference(std::span<const float> logits, std::span<const int64_t> history,
                                                    const SamplingOptions& options) {
  std::vector<TokenProbability> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    double logit = logits[i];
    if (std::find(history.begin(), history.end(), token) != history.end()) {
      logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    }
    tokens.push_back({token, logit});
  }
  std::sort(tokens.begin(), tokens.end(), [](const TokenProbability& a, const TokenProbability& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
  });
  if (options.temperature == 0) return {{tokens[0].token, 1.0}};
  const double largest = tokens[0].probability;
  for (TokenProbability& token : tokens) {
    token.probability = std::exp((token.probability - largest) / options.temperature);
  }
  if (options.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<size_t>(options.top_k)));
  normalize(tokens);
  double sum = 0;
  size_t kept = 0;
  while (kept < tokens.size() && sum < options.top_p) sum += tokens[kept++].probability;
  tokens.resize(kept);
  const double least = options.min_p * tokens[0].probability;
  std::erase_if(tokens, [&](const TokenProbability& token) { return token.probability < least; });
  normalize(tokens);
  return tokens;
}

}  // namespace qx::kernels
