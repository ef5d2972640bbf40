#include "quincunx/kernels/newton_schulz/thin_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/newton_schulz/newton_schulz_kernel.h"
#include "quincunx/kernels/newton_schulz/thin_matrix_kernel.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Columns of one pass over the rows: 192 KiB of 24 rows lie in the L2 cache, and the sums of a tile are joined rarely.
constexpr int64_t kPassColumns = 2048;
// Columns that one item of parallel work applies the product to.
constexpr int64_t kApplyColumns = 1024;
constexpr int kSafeExponent = 40;

int64_t num_passes(int64_t cols) { return (cols + kPassColumns - 1) / kPassColumns; }

int64_t padded_size(int64_t rows) {
  constexpr int64_t kMultiple = thin_matrix_kernel::kSquareMultiple;
  return (rows + kMultiple - 1) / kMultiple * kMultiple;
}

// Whole cache lines of floats.
int64_t lines(int64_t floats) { return (floats + 15) / 16 * 16; }

constexpr int64_t kFloatsPerDouble = sizeof(double) / sizeof(float);

class ThinMatrix {
 public:
  ThinMatrix(const float* source, int64_t stride, int64_t rows, int64_t cols, float* workspace)
      : source_(source), stride_(stride), rows_(rows), cols_(cols), size_(padded_size(rows)) {
    const auto take = [&workspace](int64_t doubles) {
      auto* taken = reinterpret_cast<double*>(workspace);
      workspace += lines(kFloatsPerDouble * doubles);
      return taken;
    };
    sums_ = take(num_passes(cols) * rows * rows);
    for (double** square : {&gram_, &polynomial_, &product_, &spare_}) *square = take(size_ * size_);
    pass_bits_ = reinterpret_cast<uint32_t*>(workspace);
    applied_ = workspace + lines(num_passes(cols));
  }

  static int64_t workspace_size(int64_t rows, int64_t cols) {
    const int64_t size = padded_size(rows);
    return lines(kFloatsPerDouble * num_passes(cols) * rows * rows) + 4 * lines(kFloatsPerDouble * size * size) +
           lines(num_passes(cols)) + lines(rows * rows);
  }

  // gram_ = x x^T, padded with zeros; returns the largest bit pattern of a magnitude.
  uint32_t compute_gram();
  // gram_ of the matrix divided by its norm.
  void normalise(float eps, int exponent);
  void iterate(std::span<const NewtonSchulzStep> steps);
  void apply(float* destination, int64_t destination_stride);

 private:
  // polynomial_ = a I + b gram_ + c gram_^2
  void compute_polynomial(const NewtonSchulzStep& step);

  const float* source_;
  int64_t stride_, rows_, cols_, size_;
  double reciprocal_norm_ = 1.0;
  double *sums_, *gram_, *polynomial_, *product_, *spare_;
  uint32_t* pass_bits_;
  float* applied_;
};

uint32_t ThinMatrix::compute_gram() {
  const int64_t passes = num_passes(cols_);
  const int64_t square = rows_ * rows_;
  // Each pass has sums of its own, which are added in order whoever computed them.
  parallel_for(0, passes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t pass = begin; pass < end; ++pass) {
      const int64_t column = pass * kPassColumns;
      const int64_t columns = std::min(kPassColumns, cols_ - column);
      uint32_t largest = 0;
      for (int64_t i = 0; i < rows_; ++i) {
        largest = std::max(largest, newton_schulz_kernel::max_magnitude_bits(source_ + i * stride_ + column, columns));
      }
      pass_bits_[pass] = largest;
      thin_matrix_kernel::gram(source_ + column, rows_, columns, stride_, sums_ + pass * square);
    }
  });
  std::fill(gram_, gram_ + size_ * size_, 0.0);
  for (int64_t i = 0; i < rows_; ++i) {
    for (int64_t j = i; j < rows_; ++j) {
      double sum = 0.0;
      for (int64_t pass = 0; pass < passes; ++pass) sum += sums_[pass * square + i * rows_ + j];
      gram_[i * size_ + j] = gram_[j * size_ + i] = sum;
    }
  }
  return *std::max_element(pass_bits_, pass_bits_ + passes);
}

void ThinMatrix::normalise(float eps, int exponent) {
  double squares = 0.0;
  for (int64_t i = 0; i < rows_; ++i) squares += gram_[i * size_ + i];
  reciprocal_norm_ = 1.0 / (std::sqrt(squares) + std::scalbn(static_cast<double>(eps), exponent));
  const double factor = reciprocal_norm_ * reciprocal_norm_;
  for (int64_t i = 0; i < size_ * size_; ++i) gram_[i] *= factor;
}

void ThinMatrix::compute_polynomial(const NewtonSchulzStep& step) {
  thin_matrix_kernel::multiply(gram_, gram_, size_, polynomial_);
  const double b = step.b;
  const double c = step.c;
  for (int64_t i = 0; i < size_ * size_; ++i) polynomial_[i] = b * gram_[i] + c * polynomial_[i];
  for (int64_t i = 0; i < rows_; ++i) polynomial_[i * size_ + i] += step.a;
}

// With P_k the polynomial of step k in R_k, the Gram matrix of X_k:  X_{k+1} = P_k X_k, R_{k+1} = P_k R_k P_k.
void ThinMatrix::iterate(std::span<const NewtonSchulzStep> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    compute_polynomial(steps[i]);
    if (i + 1 < steps.size()) {
      thin_matrix_kernel::multiply(gram_, polynomial_, size_, spare_);
      thin_matrix_kernel::multiply(spare_, polynomial_, size_, gram_);
    }
    if (i == 0) {
      std::swap(product_, polynomial_);
    } else {
      thin_matrix_kernel::multiply(polynomial_, product_, size_, spare_);
      std::swap(product_, spare_);
    }
  }
}

void ThinMatrix::apply(float* destination, int64_t destination_stride) {
  for (int64_t i = 0; i < rows_; ++i) {
    for (int64_t j = 0; j < rows_; ++j) {
      applied_[i * rows_ + j] = static_cast<float>(product_[i * size_ + j] * reciprocal_norm_);
    }
  }
  parallel_for(0, (cols_ + kApplyColumns - 1) / kApplyColumns, 1, [&](int64_t begin, int64_t end) {
    const Workspace workspace(newton_schulz_kernel::apply_workspace_size(rows_));
    const int64_t column = begin * kApplyColumns;
    const int64_t columns = std::min(end * kApplyColumns, cols_) - column;
    newton_schulz_kernel::apply(applied_, {source_ + column, stride_, destination + column, destination_stride}, rows_,
                                columns, workspace.data());
  });
}

}  // namespace

int64_t thin_workspace_size(int64_t rows, int64_t cols) { return ThinMatrix::workspace_size(rows, cols); }

ThinResult orthogonalise_thin(const float* source, int64_t source_stride, float* destination,
                              int64_t destination_stride, int64_t rows, int64_t cols,
                              const NewtonSchulzOptions& options, float* workspace) {
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  ThinMatrix matrix(source, source_stride, rows, cols, workspace);
  const uint32_t largest = matrix.compute_gram();
  if (largest == 0) return ThinResult::kZero;
  if (largest >= kInfinityBits) return ThinResult::kNotFinite;
  const int exponent = std::ilogb(std::bit_cast<float>(largest));
  if (std::abs(exponent) > kSafeExponent) return ThinResult::kOutOfRange;
  matrix.normalise(options.eps, exponent);
  matrix.iterate(options.coefficients);
  matrix.apply(destination, destination_stride);
  return ThinResult::kDone;
}

}  // namespace qx::kernels
