// Newton-Schulz orthogonalisation: replaces the singular values of a matrix by numbers near 1 and keeps its singular
// vectors, by a few steps of an odd quintic polynomial. Muon applies it to each momentum matrix.
//
//   X_0 = X / (|X|_F + eps)      X_{k+1} = a_k X_k + b_k (X_k X_k^T) X_k + c_k (X_k X_k^T)^2 X_k
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// The polynomial of one step, applied to each singular value s: a s + b s^3 + c s^5.
struct NewtonSchulzStep {
  float a = 0.0f;
  float b = 0.0f;
  float c = 0.0f;
};

enum class NewtonSchulzForm : uint8_t {
  kAuto,      // kDirect for matrices up to an aspect ratio of 2, kGram beyond
  kDirect,    // the recurrence above: each step reads and writes the whole matrix
  kGram,      // iterates on the small Gram matrix and applies the product of the steps; restarts once, after two steps,
              // or, from an aspect ratio of 16 up to 128 rows, keeps the small matrices in double precision
  kGramPure,  // never restarts: fewer products, but singular values far below the largest one lose accuracy
};

struct NewtonSchulzOptions {
  // One triple a step, at least one. See newton_schulz_coefficients.
  std::span<const NewtonSchulzStep> coefficients;
  // Added to the norm after the matrix has been scaled so that its largest magnitude is in [1, 2): the result does not
  // depend on the scale of the input. Finite and not negative.
  float eps = 1e-7f;
  NewtonSchulzForm form = NewtonSchulzForm::kAuto;
};

// Writes the orthogonalised `input` to `output`. Both are f32, on the CPU, of the same shape [rows, cols] or
// [batch, rows, cols], with any strides; they may be the same view but must not overlap otherwise. A matrix of zeros
// gives zeros; one that holds a NaN or an infinity gives NaN in every element and leaves its neighbours in the batch
// alone; any finite scale from denormals to 3e38 gives the same result. The bits do not depend on the number of
// threads nor on what else is in the batch. Thread-safe.
Status newton_schulz(const TensorView& input, const TensorView& output, const NewtonSchulzOptions& options);

// The named sets: "polar_express" (per-step optimal polynomials, safety factor 1.05), "quintic" (five tuned steps) and
// "classic" (3.4445, -4.7750, 2.0315 in each step). Beyond the end of a set its last triple is repeated.
// `num_steps` is at least 1.
Result<std::vector<NewtonSchulzStep>> newton_schulz_coefficients(std::string_view name, int num_steps);

// "auto", "direct", "gram" or "gram_pure".
Result<NewtonSchulzForm> newton_schulz_form_from_name(std::string_view name);

// The form that is run for a matrix: `form` itself unless it is kAuto.
NewtonSchulzForm newton_schulz_resolved_form(int64_t rows, int64_t cols, NewtonSchulzForm form);

// Floating-point operations for one matrix, symmetric products counted once: the cost that planners balance.
double newton_schulz_flops(int64_t rows, int64_t cols, int num_steps, NewtonSchulzForm form);

// Bytes of scratch memory that one matrix needs while it is worked on; each thread works on one matrix at a time.
int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t cols);

}  // namespace qx::kernels
