// The scalar reference of sampling.h, in double precision: which tokens are kept, and how likely each is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quincunx/kernels/sampling/sampling.h"

namespace qx::kernels {

struct TokenProbability {
  int64_t token;
  double probability;
};

// The most likely first, equals by their number. `history` is that of the row; the options' own is not read.
std::vector<TokenProbability> kept_tokens_reference(std::span<const float> logits, std::span<const int64_t> history,
                                                    const SamplingOptions& options);

}  // namespace qx::kernels
