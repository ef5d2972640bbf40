#include "quincunx/kernels/newton_schulz/newton_schulz.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "quincunx/kernels/gemm/gemm_arguments.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/newton_schulz/orthogonalise.h"
#include "quincunx/kernels/newton_schulz/thin_matrix.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// A batch of fewer than two matrices a thread, each of at least this much work, is done one matrix after the other by
// all threads; otherwise each thread takes one matrix at a time.
constexpr double kMinSharedFlops = 2e8;

struct Batch {
  int64_t count, rows, cols;
  const TensorView& input;
  const TensorView& output;

  StridedFloats matrix(const TensorView& view, int64_t index) const {
    const int64_t offset = view.num_dims() == 3 ? index * view.stride(0) : 0;
    return {view.data_as<float>() + offset, view.stride(-2), view.stride(-1)};
  }
};

void run_batch(const Batch& batch, const NewtonSchulzOptions& options) {
  const int64_t size = orthogonalise_workspace_size(batch.rows, batch.cols);
  const double flops =
      newton_schulz_flops(batch.rows, batch.cols, static_cast<int>(options.coefficients.size()), options.form);
  std::atomic<int64_t> next = 0;
  const auto run = [&](int64_t, int64_t) {
    const Workspace workspace(size);
    for (int64_t i = next++; i < batch.count; i = next++) {
      orthogonalise(batch.matrix(batch.input, i), batch.matrix(batch.output, i), batch.rows, batch.cols, options,
                    workspace.data());
    }
  };
  const bool share_each = flops >= kMinSharedFlops && batch.count < 2 * num_threads();
  if (batch.count == 1 || share_each) return run(0, 1);
  parallel_for(0, std::min<int64_t>(batch.count, num_threads()), 1, run);
}

Status check_options(const NewtonSchulzOptions& options) {
  if (options.coefficients.empty()) {
    return invalid_argument("coefficients: expected at least one triple (a, b, c), got none");
  }
  for (size_t i = 0; i < options.coefficients.size(); ++i) {
    const NewtonSchulzStep& step = options.coefficients[i];
    if (!std::isfinite(step.a) || !std::isfinite(step.b) || !std::isfinite(step.c)) {
      return invalid_argument("coefficients[" + std::to_string(i) + "]: expected finite numbers, got (" +
                              std::to_string(step.a) + ", " + std::to_string(step.b) + ", " + std::to_string(step.c) +
                              ")");
    }
  }
  if (!std::isfinite(options.eps) || options.eps < 0.0f) {
    return invalid_argument("eps: expected a finite number that is not negative, got " + std::to_string(options.eps));
  }
  if (options.form > NewtonSchulzForm::kGramPure) {
    return invalid_argument("form: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(options.form)));
  }
  return ok_status();
}

Status check_tensors(const TensorView& input, const TensorView& output) {
  if (input.num_dims() != 2 && input.num_dims() != 3) {
    return invalid_argument("input: expected [rows, cols] or [batch, rows, cols], got " + input.to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("input", input));
  QX_RETURN_IF_ERROR(check_f32_operand("output", output));
  if (!std::ranges::equal(input.shape(), output.shape())) {
    return invalid_argument("output: expected the shape of input, " + input.to_string() + ", got " +
                            output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  return is_same_view(input, output) ? ok_status() : check_output_apart("input", input, output);
}

}  // namespace

Status newton_schulz(const TensorView& input, const TensorView& output, const NewtonSchulzOptions& options) {
  QX_RETURN_IF_ERROR(check_options(options));
  QX_RETURN_IF_ERROR(check_tensors(input, output));
  if (input.num_elements() == 0) return ok_status();
  const Batch batch{input.num_dims() == 3 ? input.size(0) : 1, input.size(-2), input.size(-1), input, output};
  NewtonSchulzOptions resolved = options;
  resolved.form = newton_schulz_resolved_form(batch.rows, batch.cols, options.form);
  return with_scratch_memory([&] { run_batch(batch, resolved); });
}

NewtonSchulzForm newton_schulz_resolved_form(int64_t rows, int64_t cols, NewtonSchulzForm form) {
  if (form != NewtonSchulzForm::kAuto) return form;
  const int64_t small = std::min(rows, cols);
  const int64_t large = std::max(rows, cols);
  return large > 2 * small ? NewtonSchulzForm::kGram : NewtonSchulzForm::kDirect;
}

double newton_schulz_flops(int64_t rows, int64_t cols, int num_steps, NewtonSchulzForm form) {
  const double m = static_cast<double>(std::min(rows, cols));
  const double n = static_cast<double>(std::max(rows, cols));
  const double steps = num_steps;
  const double symmetric = m * m * m;    // m x m x m, the upper half only
  const double gram = m * m * n;         // X X^T, the upper half only
  const double apply = 2.0 * m * m * n;  // Q X
  switch (newton_schulz_resolved_form(rows, cols, form)) {
    case NewtonSchulzForm::kAuto:
    case NewtonSchulzForm::kDirect: return steps * (gram + symmetric + apply);
    case NewtonSchulzForm::kGram: {
      // In double precision an operation counts twice: R^2, Q P, R P and (R P) P of a step, not all in the first and
      // last.
      if (is_thin(std::min(rows, cols), std::max(rows, cols))) {
        return 2.0 * gram + apply + 2.0 * 2.0 * symmetric * (4.0 * steps - 3.0);
      }
      const double runs = num_steps > 2 ? 2.0 : 1.0;
      // A step: R^2, Q P, and, but in the last step of a run, R P and (R P) P.
      return runs * (gram + apply) + symmetric * (2.0 * steps - runs + 2.0 * (steps - runs));
    }
    case NewtonSchulzForm::kGramPure: return gram + apply + symmetric * (2.0 * steps - 1.0 + 2.0 * (steps - 1.0));
  }
  return 0.0;
}

int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t cols) {
  return static_cast<int64_t>(sizeof(float)) * orthogonalise_workspace_size(rows, cols);
}

}  // namespace qx::kernels
