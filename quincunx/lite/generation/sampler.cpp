#include "quincunx/lite/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

namespace qx::lite {
namespace {

// The logits' most likely tokens first, equal ones by their number.
void sort_by_logit(std::span<const float> logits, std::vector<int32_t>& order) {
  std::sort(order.begin(), order.end(), [&](int32_t left, int32_t right) {
    const float first = logits[static_cast<size_t>(left)];
    const float second = logits[static_cast<size_t>(right)];
    return first != second ? first > second : left < right;
  });
}

}  // namespace

Result<Sampler> Sampler::make(const SamplingOptions& options) {
  if (!(options.temperature >= 0.0) || std::isinf(options.temperature)) {
    return invalid_argument("temperature is " + std::to_string(options.temperature) + ", expected 0 or more");
  }
  if (options.top_k < 0) {
    return invalid_argument("top_k is " + std::to_string(options.top_k) + ", expected 0 (all tokens) or more");
  }
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) {
    return invalid_argument("top_p is " + std::to_string(options.top_p) + ", expected more than 0 and at most 1");
  }
  return Sampler(options);
}

Result<int32_t> Sampler::next(std::span<const float> logits) {
  int32_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t token = 0; token < logits.size(); ++token) {
    if (std::isnan(logits[token])) {
      return failed_precondition("the model's logit of token " + std::to_string(token) + " is NaN");
    }
    if (logits[token] > largest) {
      largest = logits[token];
      best = static_cast<int32_t>(token);
    }
  }
  if (best < 0) return failed_precondition("the model's logits leave no token possible");
  return options_.temperature == 0.0 || std::isinf(largest) ? best : draw(logits, largest);
}

int32_t Sampler::draw(std::span<const float> logits, float largest) {
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  sort_by_logit(logits, order_);
  const auto logit = [&](size_t rank) { return logits[static_cast<size_t>(order_[rank])]; };
  size_t count = order_.size();
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < count) {
    count = static_cast<size_t>(options_.top_k);
    while (count < order_.size() && logit(count) == logit(count - 1)) ++count;
  }
  weights_.resize(count);
  double total = 0.0;
  for (size_t rank = 0; rank < count; ++rank) {
    weights_[rank] = std::exp((static_cast<double>(logit(rank)) - largest) / options_.temperature);
    total += weights_[rank];
  }
  double kept = 0.0;
  size_t num_kept = 0;
  while (num_kept < count && (num_kept == 0 || kept < options_.top_p * total)) kept += weights_[num_kept++];
  constexpr double kUnit = 0x1p-53;
  double remaining = static_cast<double>(random_() >> 11) * kUnit * kept;
  for (size_t rank = 0; rank < num_kept; ++rank) {
    remaining -= weights_[rank];
    if (remaining < 0.0) return order_[rank];
  }
  return order_[num_kept - 1];  // rounding left a remainder
}

}  // namespace qx::lite
