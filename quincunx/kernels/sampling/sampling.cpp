#include "quincunx/kernels/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/kernels/sampling/philox.h"
#include "quincunx/kernels/sampling/sampling_weights.h"
#include "quincunx/kernels/top_k/selection.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

Status check_range(const char* name, double value, bool is_right, const char* expected) {
  if (is_right) return ok_status();
  return invalid_argument(std::string(name) + ": expected " + expected + ", got " + std::to_string(value));
}

Status check_options(const SamplingOptions& options) {
  const auto finite = [](double x) { return std::isfinite(x); };
  QX_RETURN_IF_ERROR(check_range("repetition_penalty", options.repetition_penalty,
                                 options.repetition_penalty > 0 && finite(options.repetition_penalty),
                                 "a finite number above 0"));
  QX_RETURN_IF_ERROR(check_range("temperature", options.temperature,
                                 options.temperature >= 0 && finite(options.temperature),
                                 "a finite number that is not negative"));
  if (options.top_k < 0) {
    return invalid_argument("top_k: expected 0 (all tokens) or more, got " + std::to_string(options.top_k));
  }
  QX_RETURN_IF_ERROR(
      check_range("top_p", options.top_p, options.top_p > 0 && options.top_p <= 1, "more than 0 and at most 1"));
  return check_range("min_p", options.min_p, options.min_p >= 0 && options.min_p <= 1, "0 to 1");
}

Status check_history(const TensorView& logits, const TensorView& history) {
  if (history.dtype() != DType::kInt64) return type_error("history: expected int64, got " + history.to_string());
  QX_RETURN_IF_ERROR(check_rank("history", history, 2));
  if (history.size(0) != logits.size(0)) {
    return invalid_argument("history: expected a row for each of logits " + logits.to_string() + ", got " +
                            history.to_string());
  }
  if (history.num_elements() == 0) return ok_status();
  if (history.data() == nullptr) return invalid_argument("history: null data for " + history.to_string());
  for (int64_t r = 0; r < history.size(0); ++r) {
    for (int64_t i = 0; i < history.size(1); ++i) {
      const int64_t token = history.data_as<int64_t>()[r * history.stride(0) + i * history.stride(1)];
      if (token >= logits.size(1)) {
        return invalid_argument("history: expected tokens below " + std::to_string(logits.size(1)) + ", got " +
                                std::to_string(token) + " in row " + std::to_string(r));
      }
    }
  }
  return ok_status();
}

Status check_arguments(const TensorView& logits, const SamplingOptions& options, const TensorView& tokens) {
  QX_RETURN_IF_ERROR(check_options(options));
  QX_RETURN_IF_ERROR(check_kernel_float("logits", logits));
  QX_RETURN_IF_ERROR(check_rank("logits", logits, 2));
  const int64_t vocabulary = logits.size(1);
  if (logits.size(0) != 0 && (vocabulary == 0 || vocabulary > std::numeric_limits<int32_t>::max())) {
    return invalid_argument("logits: expected 1 to 2^31 - 1 tokens, got " + logits.to_string());
  }
  if (tokens.dtype() != DType::kInt64) return type_error("tokens: expected int64, got " + tokens.to_string());
  QX_RETURN_IF_ERROR(check_vector("tokens", tokens, logits.size(0), "one a row of logits"));
  if (tokens.data() == nullptr && tokens.num_elements() != 0) {
    return invalid_argument("tokens: null data for " + tokens.to_string());
  }
  QX_RETURN_IF_ERROR(check_output("tokens", tokens, {{"logits", &logits}}));
  return options.history ? check_history(logits, *options.history) : ok_status();
}

// What a thread keeps from row to row.
struct Workspace {
  std::vector<float> logits, weights, sums;
  std::vector<int64_t> seen;
  std::vector<RankedIndex> candidates, scratch;
};

class RowSampler {
 public:
  RowSampler(const TensorView& logits, const SamplingOptions& options) : logits_(logits), options_(options) {}

  // The token of row r, or -1 if the row's logits are NaN, -2 if they leave no token possible.
  int64_t draw(int64_t r, Workspace& work) const {
    const std::span<const float> x = load(r, work);
    const LargestLogit largest = largest_logit(x);
    if (largest.has_nan) return -1;
    if (largest.value == -std::numeric_limits<float>::infinity()) return -2;
    if (options_.temperature == 0 || std::isinf(largest.value)) {
      return std::find(x.begin(), x.end(), largest.value) - x.begin();
    }
    const double u = uniform_at(options_.seed, static_cast<uint64_t>(r), options_.step);
    const auto inverse = static_cast<float>(1 / options_.temperature);
    const auto count = static_cast<int64_t>(x.size());
    if (options_.top_k > 0 && options_.top_k < count) {
      select_first(x, options_.top_k, true, work.candidates, work.scratch);
      return draw_from_candidates(weigh_candidates(x, largest.value, inverse, work), u, work);
    }
    work.weights.resize(x.size());
    work.sums.resize((x.size() + kWeightBlock - 1) / kWeightBlock);
    fill_weights(x, largest.value, inverse, work.weights, work.sums);
    double total = 0;
    for (const float sum : work.sums) total += sum;
    if (options_.top_p == 1 && options_.min_p == 0) return draw_from_all(u * total, work);
    gather_candidates(x, total, work);
    return draw_from_candidates(total, u, work);
  }

 private:
  std::span<const float> load(int64_t r, Workspace& work) const {
    const int64_t count = logits_.size(1);
    const char* row = logits_.data_as<char>() + r * logits_.stride(0) * dtype_size_bytes(logits_.dtype());
    const bool is_plain = logits_.dtype() == DType::kFloat32 && logits_.stride(1) == 1;
    const bool has_penalty = options_.history && options_.repetition_penalty != 1;
    if (is_plain && !has_penalty) return {reinterpret_cast<const float*>(row), static_cast<size_t>(count)};
    work.logits.resize(static_cast<size_t>(count));
    load_row_as_f32(logits_.dtype(), row, logits_.stride(1), count, work.logits.data());
    if (has_penalty) penalize(r, work);
    return work.logits;
  }

  void penalize(int64_t r, Workspace& work) const {
    const TensorView& history = *options_.history;
    work.seen.clear();
    for (int64_t i = 0; i < history.size(1); ++i) {
      const int64_t token = history.data_as<int64_t>()[r * history.stride(0) + i * history.stride(1)];
      if (token >= 0) work.seen.push_back(token);
    }
    std::sort(work.seen.begin(), work.seen.end());
    work.seen.erase(std::unique(work.seen.begin(), work.seen.end()), work.seen.end());
    for (const int64_t token : work.seen) {
      float& logit = work.logits[static_cast<size_t>(token)];
      const double penalty = options_.repetition_penalty;
      logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
    }
  }

  // Candidates are in order; weights[i] becomes that of candidate i. Returns their sum.
  static double weigh_candidates(std::span<const float> x, float largest, float inverse, Workspace& work) {
    const size_t count = work.candidates.size();
    std::vector<float> logits(count);
    for (size_t i = 0; i < count; ++i) logits[i] = x[static_cast<size_t>(index_of(work.candidates[i]))];
    work.weights.resize(count);
    work.sums.resize((count + kWeightBlock - 1) / kWeightBlock);
    fill_weights(logits, largest, inverse, work.weights, work.sums);
    double total = 0;
    for (size_t i = 0; i < count; ++i) total += work.weights[i];
    return total;
  }

  // The tokens that top_p and min_p may keep, in order. Tokens below (1 - top_p) total / V, even if all were, are
  // together no more than what top_p leaves out.
  void gather_candidates(std::span<const float> x, double total, Workspace& work) const {
    const double rest = 0.999 * (1 - options_.top_p) * total / static_cast<double>(x.size());
    const auto least = static_cast<float>(std::max(rest, options_.min_p * 0.999999));
    const std::span<const float> weights = work.weights;
    work.candidates.clear();
    for (size_t i = 0; i < x.size();) {
      i = static_cast<size_t>(next_block_above(weights, static_cast<int64_t>(i), least));
      const size_t end = std::min(i + 32, x.size());
      for (; i < end; ++i) {
        if (weights[i] > least) work.candidates.push_back(ranked(x[i], static_cast<int64_t>(i), true));
      }
    }
    sort_ranked(work.candidates, work.scratch);
    std::vector<float> in_order;
    in_order.reserve(work.candidates.size());
    for (const RankedIndex item : work.candidates) in_order.push_back(weights[static_cast<size_t>(index_of(item))]);
    work.weights = std::move(in_order);
  }

  int64_t draw_from_candidates(double total, double u, const Workspace& work) const {
    double kept = 0;
    size_t num_kept = 0;
    while (num_kept < work.candidates.size() && (num_kept == 0 || kept < options_.top_p * total) &&
           work.weights[num_kept] >= options_.min_p) {
      kept += work.weights[num_kept++];
    }
    double sum = 0;
    for (size_t i = 0; i < num_kept; ++i) {
      sum += work.weights[i];
      if (sum > u * kept) return index_of(work.candidates[i]);
    }
    return index_of(work.candidates[num_kept - 1]);
  }

  static int64_t draw_from_all(double target, const Workspace& work) {
    double before = 0;
    size_t block = 0;
    size_t last_block = work.sums.size() - 1;
    while (last_block > 0 && work.sums[last_block] == 0) --last_block;
    while (block < last_block && before + work.sums[block] <= target) before += work.sums[block++];
    const size_t begin = block * kWeightBlock;
    const size_t end = std::min(begin + kWeightBlock, work.weights.size());
    // Rounding may leave the block's own sum short of the target: its last possible token is taken then.
    size_t last = begin;
    double sum = before;
    for (size_t i = begin; i < end; ++i) {
      if (work.weights[i] == 0) continue;
      last = i;
      sum += work.weights[i];
      if (sum > target) break;
    }
    return static_cast<int64_t>(last);
  }

  const TensorView& logits_;
  const SamplingOptions& options_;
};

}  // namespace

Status sample(const TensorView& logits, const SamplingOptions& options, const TensorView& tokens) {
  QX_RETURN_IF_ERROR(check_arguments(logits, options, tokens));
  if (logits.size(0) == 0) return ok_status();
  const RowSampler sampler(logits, options);
  parallel_for(0, logits.size(0), std::max<int64_t>(1, kRowLoopGrain / logits.size(1)),
               [&](int64_t begin, int64_t end) {
                 Workspace work;
                 for (int64_t r = begin; r < end; ++r) {
                   tokens.data_as<int64_t>()[r * tokens.stride(0)] = sampler.draw(r, work);
                 }
               });
  for (int64_t r = 0; r < logits.size(0); ++r) {
    const int64_t token = tokens.data_as<int64_t>()[r * tokens.stride(0)];
    if (token == -1) return failed_precondition("logits: row " + std::to_string(r) + " has a NaN");
    if (token == -2) return failed_precondition("logits: row " + std::to_string(r) + " leaves no token possible");
  }
  return ok_status();
}

}  // namespace qx::kernels
