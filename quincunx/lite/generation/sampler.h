// From logits to the next token.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::lite {

struct SamplingOptions {
  // 0 takes the most likely token; p(token) is softmax(logits / temperature) otherwise.
  double temperature = 0.0;
  // Only the `top_k` most likely tokens (and those as likely as the last of them) can be drawn; 0: all.
  int64_t top_k = 0;
  // Only the fewest most likely tokens that are `top_p` likely together can be drawn, after top_k; 1: all.
  double top_p = 1.0;
  // The same seed, options and logits give the same tokens on every machine.
  uint64_t seed = 0;
};

// Not for several threads at once.
class Sampler {
 public:
  // INVALID_ARGUMENT: temperature below 0 or not finite, top_k below 0, top_p outside (0, 1].
  static Result<Sampler> make(const SamplingOptions& options);

  // The lowest of equally likely tokens where nothing is drawn. FAILED_PRECONDITION if a logit is NaN, or none is
  // larger than -infinity.
  Result<int32_t> next(std::span<const float> logits);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  int32_t draw(std::span<const float> logits, float largest);

  SamplingOptions options_;
  std::mt19937_64 random_;  // its numbers are fixed by the C++ standard
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace qx::lite
