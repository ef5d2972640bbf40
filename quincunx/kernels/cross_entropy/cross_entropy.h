// Cross-entropy of logits with class indices, and its gradient, without a matrix of probabilities in between.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

enum class LossReduction { kNone, kMean, kSum };

// "none", "mean" or "sum"; INVALID_ARGUMENT for anything else.
Result<LossReduction> loss_reduction_from_name(std::string_view name);

struct CrossEntropyOptions {
  int64_t ignore_index = -100;  // rows of this target have loss and gradient 0 and do not count in the mean
  double label_smoothing = 0;   // 0 to 1: this part of the target is spread evenly over all classes
  LossReduction reduction = LossReduction::kMean;
};

// With p = softmax(logits[r]) and s = label_smoothing:
//   loss[r] = -(1 - s) log p[target] - s mean(log p)
// logits: [R, V] of float32, bfloat16 or float16, any strides, V at least 1 unless R is 0. targets: int64 or int32 [R],
// any stride, from 0 to V - 1 or ignore_index. loss: float32 [R] for kNone, else [] (the mean over no row is NaN).
// log_sum_exp: float32 [R], contiguous: what the gradient needs. The logits are read once, only around a target of more
// than half the probability twice. Sums are taken in f32 blocks that are joined in order, the rows' losses in f64: the
// same bits for any number of threads. Without smoothing a loss below log 2 errs relatively to itself, however near to
// 0: by at most (2.25 max |x - x[target]| + 140) 2^-24, and by 2^-149 for each class whose exp(x - x[target]) is
// denormal. Thread-safe.
//   cross_entropy(logits, targets, {.label_smoothing = 0.1}, loss, log_sum_exp)
Status cross_entropy(const TensorView& logits, const TensorView& targets, const CrossEntropyOptions& options,
                     const TensorView& loss, const TensorView& log_sum_exp);

// grad_logits[r] = g[r] (p - (1 - s) onehot(target) - s / V), where g[r] is grad_loss[r] for kNone, grad_loss for kSum
// and grad_loss / (rows that count) for kMean. log_sum_exp: from the forward call of the same logits. grad_logits: of
// the logits' shape and dtype; it may be the logits. p takes its relative error from the rounded log_sum_exp: up to
// |log_sum_exp| 2^-24 beside that of its exponential.
Status cross_entropy_backward(const TensorView& logits, const TensorView& targets, const TensorView& log_sum_exp,
                              const TensorView& grad_loss, const CrossEntropyOptions& options,
                              const TensorView& grad_logits);

}  // namespace qx::kernels
