// The next token of each row of logits.
#pragma once

#include <cstdint>
#include <optional>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Applied in this order: repetition penalty, temperature, top-k, top-p, min-p.
struct SamplingOptions {
  // Logits of the row's tokens in `history` are divided by it where positive and multiplied where not, once a token.
  double repetition_penalty = 1;                     // above 0, finite
  std::optional<TensorView> history = std::nullopt;  // int64 [R, H], any strides; negative tokens are padding
  double temperature = 1;  // 0 takes the most likely token (the lowest of equals); finite, not negative
  int64_t top_k = 0;       // the k most likely tokens, equals by their number; 0: all
  double top_p = 1;        // the fewest most likely of those whose probabilities reach top_p together; above 0, up to 1
  double min_p = 0;        // those at least min_p times as likely as the most likely one; 0 to 1
  uint64_t seed = 0;
  uint64_t step = 0;  // the position in the sequence, say: each (seed, row, step) has a number of its own
};

// tokens[r] is drawn from softmax(logits[r] / temperature) among the tokens that the options keep. logits: [R, V] of
// float32, bfloat16 or float16, any strides, V from 1 to 2^31 - 1 unless R is 0; tokens: int64 [R].
//
// Reproducible: w[i] = exp((logits[i] - max) / temperature) in f32 by operations that every processor rounds alike,
// u = uniform_at(seed, r, step) of philox.h, and the first token at which the running sum of w exceeds u times the
// whole sum is taken. With top_k, top_p or min_p the sum runs over the kept tokens, the most likely first, equals by
// their number, in f64; else over all tokens by their number, in blocks of 1024 summed in f32 and joined in f64. So the
// same arguments give the same tokens on every instruction set and for any number of threads. Thread-safe.
//
// FAILED_PRECONDITION if a logit is NaN or no logit of a row is above -infinity. With a logit of +infinity the first
// such token is taken.
//   sample(logits, {.temperature = 0.8, .top_p = 0.95, .seed = 1, .step = position}, tokens)
Status sample(const TensorView& logits, const SamplingOptions& options, const TensorView& tokens);

}  // namespace qx::kernels
