#include "quincunx/kernels/newton_schulz/orthogonalise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/symmetric_product.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/newton_schulz/newton_schulz_kernel.h"
#include "quincunx/kernels/newton_schulz/thin_matrix.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

using namespace newton_schulz_kernel;  // NOLINT(google-build-using-namespace)

// Up to this many rows the products with the wide matrix read it as it lies. Measured on a Zen 4 core for 1024 columns:
// 2.8 times as fast as packing with 24 rows, 1.2 times with 256, equal with 768.
constexpr int64_t kMaxUnpackedRows = 256;
// From this many rows a symmetric product computes the upper tiles only; below, tiles are as large as the matrix.
constexpr int64_t kMinSymmetricRows = 48;
// Columns that one item of parallel work applies q to: packing q again for each is then a small part of it.
constexpr int64_t kApplyColumns = 256;
// The Gram matrix is computed from the matrix as it comes if its largest magnitude lies within 2^-40 ... 2^40;
// otherwise the matrix is scaled first. Powers of two throughout: the result is the same.
constexpr int kSafeExponent = 40;

int64_t padded(int64_t count) { return num_panels(count) * kPanelColumns; }

// Rows that are a multiple of 1 KiB apart would compete for the same sets of the L1 cache.
int64_t padded_stride(int64_t width) { return width % 256 == 0 ? width + kPanelColumns : width; }

int64_t num_gram_passes(int64_t width) { return (width + kGramColumns - 1) / kGramColumns; }

int64_t packing_size(int64_t rows, int64_t width) {
  if (rows <= kMaxUnpackedRows) return std::max(padded(rows) * rows, rows * rows * num_gram_passes(width));
  return padded(rows) * width;
}

// The matrix with its shorter side as rows, and the square matrices of the iteration.
class Iteration {
 public:
  Iteration(int64_t rows, int64_t columns, float* workspace)
      : rows_(rows), columns_(columns), width_(padded(columns)), stride_(padded_stride(width_)) {
    const int64_t square = padded(rows * rows);
    x_ = workspace;
    gram_ = x_ + rows * stride_;
    polynomial_ = gram_ + square;
    product_ = polynomial_ + square;
    spare_ = product_ + square;
    packing_ = spare_ + square;
  }

  static int64_t workspace_size(int64_t rows, int64_t columns) {
    const int64_t width = padded(columns);
    return rows * padded_stride(width) + 4 * padded(rows * rows) + packing_size(rows, width);
  }

  void load(const StridedFloats& source);
  void store(const StridedFloats& destination) const;
  uint32_t max_bits() const { return max_magnitude_bits(x_, rows_ * stride_); }
  // Brings the largest magnitude near 1 if it is far from it; returns the exponent of the largest magnitude then.
  int scale_to_safe_range();

  // For a matrix that is_thin: works on the scaled copy in place.
  void run_thin(const NewtonSchulzOptions& options, float* workspace) {
    orthogonalise_thin(x_, stride_, x_, stride_, rows_, columns_, options, workspace);
  }
  void run_direct(const NewtonSchulzOptions& options, int exponent);
  void run_gram(const NewtonSchulzOptions& options, int exponent, size_t restart_after);

 private:
  // gram_ = x x^T, and on the first call the division by the norm: gram_ of the normalised matrix. The matrix itself is
  // multiplied by the reciprocal later, with the first polynomial that is applied to it.
  void compute_gram();
  void normalise(float eps, int exponent);
  // polynomial_ = a I + b gram_ + c gram_^2
  void compute_polynomial(const NewtonSchulzStep& step);
  // The product of two symmetric matrices that commute is symmetric. out must be neither of the two.
  void symmetric_product(const float* left, const float* right, float* out);
  void apply(float* square);

  int64_t rows_, columns_;
  int64_t width_;   // columns and the zeros that fill the last panel
  int64_t stride_;  // between rows: zeros as well
  float reciprocal_norm_ = 1.0f;
  bool norm_is_pending_ = false;
  float *x_, *gram_, *polynomial_, *product_, *spare_, *packing_;
};

void Iteration::load(const StridedFloats& source) {
  if (source.column_stride != 1 && source.row_stride == 1) {
    transpose(source.data, source.column_stride, columns_, rows_, x_, stride_);
  } else {
    for (int64_t i = 0; i < rows_; ++i) {
      const float* row = source.data + i * source.row_stride;
      if (source.column_stride == 1) {
        std::copy(row, row + columns_, x_ + i * stride_);
      } else {
        for (int64_t j = 0; j < columns_; ++j) x_[i * stride_ + j] = row[j * source.column_stride];
      }
    }
  }
  for (int64_t i = 0; i < rows_; ++i) std::fill(x_ + i * stride_ + columns_, x_ + (i + 1) * stride_, 0.0f);
}

void Iteration::store(const StridedFloats& destination) const {
  if (destination.column_stride != 1 && destination.row_stride == 1) {
    transpose(x_, stride_, rows_, columns_, destination.data, destination.column_stride);
    return;
  }
  for (int64_t i = 0; i < rows_; ++i) {
    float* row = destination.data + i * destination.row_stride;
    if (destination.column_stride == 1) {
      std::copy(x_ + i * stride_, x_ + i * stride_ + columns_, row);
    } else {
      for (int64_t j = 0; j < columns_; ++j) row[j * destination.column_stride] = x_[i * stride_ + j];
    }
  }
}

int Iteration::scale_to_safe_range() {
  const int exponent = std::ilogb(std::bit_cast<float>(max_bits()));
  if (std::abs(exponent) <= kSafeExponent) return exponent;
  // In two steps: 2^-exponent itself may be no normal number.
  scale_in_place(x_, rows_ * stride_, std::scalbn(1.0f, -exponent / 2));
  scale_in_place(x_, rows_ * stride_, std::scalbn(1.0f, -exponent - (-exponent / 2)));
  return 0;
}

void Iteration::compute_gram() {
  if (rows_ > kMaxUnpackedRows) {
    pack_panels({x_, 1, stride_}, width_, rows_, packing_);
    multiply({.a = {x_, stride_, 1},
              .rows = rows_,
              .inner = width_,
              .packed_b = packing_,
              .columns = rows_,
              .c = gram_,
              .c_row_stride = rows_,
              .epilogue = {},
              .upper_only = true});
    return mirror_upper_half(gram_, rows_, rows_);
  }
  // Each pass has sums of its own, which are added in order whoever computed them.
  const int64_t passes = num_gram_passes(width_);
  const int64_t square = rows_ * rows_;
  const int64_t row_blocks = (rows_ + kGramRowBlock - 1) / kGramRowBlock;
  parallel_for(0, passes * row_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t pass = item / row_blocks;
      const int64_t row = item % row_blocks * kGramRowBlock;
      const int64_t column = pass * kGramColumns;
      gram_of_rows(x_ + column, rows_, row, std::min(row + kGramRowBlock, rows_),
                   std::min(kGramColumns, width_ - column), stride_, packing_ + pass * square);
    }
  });
  for (int64_t i = 0; i < rows_; ++i) {
    for (int64_t j = i; j < rows_; ++j) {
      float sum = 0.0f;
      for (int64_t pass = 0; pass < passes; ++pass) sum += packing_[pass * square + i * rows_ + j];
      gram_[i * rows_ + j] = sum;
    }
  }
  mirror_upper_half(gram_, rows_, rows_);
}

void Iteration::normalise(float eps, int exponent) {
  double squares = 0.0;
  for (int64_t i = 0; i < rows_; ++i) squares += gram_[i * rows_ + i];
  const double reciprocal = 1.0 / (std::sqrt(squares) + std::scalbn(static_cast<double>(eps), exponent));
  reciprocal_norm_ = static_cast<float>(reciprocal);
  norm_is_pending_ = true;
  scale_in_place(gram_, rows_ * rows_, static_cast<float>(reciprocal * reciprocal));
}

void Iteration::symmetric_product(const float* left, const float* right, float* out) {
  pack_panels({right, rows_, 1}, rows_, rows_, packing_);
  const bool upper_only = rows_ >= kMinSymmetricRows;
  multiply({.a = {left, rows_, 1},
            .rows = rows_,
            .inner = rows_,
            .packed_b = packing_,
            .columns = rows_,
            .c = out,
            .c_row_stride = rows_,
            .epilogue = {},
            .upper_only = upper_only});
  if (upper_only) mirror_upper_half(out, rows_, rows_);
}

void Iteration::compute_polynomial(const NewtonSchulzStep& step) {
  symmetric_product(gram_, gram_, polynomial_);
  for (int64_t i = 0; i < rows_ * rows_; ++i) polynomial_[i] = step.b * gram_[i] + step.c * polynomial_[i];
  for (int64_t i = 0; i < rows_; ++i) polynomial_[i * rows_ + i] += step.a;
}

void Iteration::apply(float* square) {
  if (std::exchange(norm_is_pending_, false)) scale_in_place(square, rows_ * rows_, reciprocal_norm_);
  if (rows_ > kMaxUnpackedRows) {
    pack_panels({x_, stride_, 1}, rows_, width_, packing_);
    return multiply({.a = {square, rows_, 1},
                     .rows = rows_,
                     .inner = rows_,
                     .packed_b = packing_,
                     .columns = width_,
                     .c = x_,
                     .c_row_stride = stride_,
                     .epilogue = {},
                     .upper_only = false});
  }
  parallel_for(0, width_ / kPanelColumns, kApplyColumns / kPanelColumns, [&](int64_t begin, int64_t end) {
    const Workspace workspace(apply_workspace_size(rows_));
    float* stripe = x_ + begin * kPanelColumns;
    newton_schulz_kernel::apply(square, {stripe, stride_, stripe, stride_}, rows_, (end - begin) * kPanelColumns,
                                workspace.data());
  });
}

void Iteration::run_direct(const NewtonSchulzOptions& options, int exponent) {
  for (size_t i = 0; i < options.coefficients.size(); ++i) {
    compute_gram();
    if (i == 0) normalise(options.eps, exponent);
    compute_polynomial(options.coefficients[i]);
    apply(polynomial_);
  }
}

// With P_k the polynomial of step k in R_k, the Gram matrix of X_k:  X_{k+1} = P_k X_k, R_{k+1} = P_k R_k P_k. All of
// them commute, so that only their product Q meets the wide matrix.
void Iteration::run_gram(const NewtonSchulzOptions& options, int exponent, size_t restart_after) {
  const size_t steps = options.coefficients.size();
  for (size_t begin = 0; begin < steps;) {
    const size_t end = begin == 0 ? std::min(restart_after, steps) : steps;
    compute_gram();
    if (begin == 0) normalise(options.eps, exponent);
    for (size_t i = begin; i < end; ++i) {
      compute_polynomial(options.coefficients[i]);
      if (i + 1 < end) {
        symmetric_product(gram_, polynomial_, spare_);
        symmetric_product(spare_, polynomial_, gram_);
      }
      if (i == begin) {
        std::swap(product_, polynomial_);
      } else {
        symmetric_product(polynomial_, product_, spare_);
        std::swap(product_, spare_);
      }
    }
    apply(product_);
    begin = end;
  }
}

void fill(const StridedFloats& destination, int64_t rows, int64_t columns, float value) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      destination.data[i * destination.row_stride + j * destination.column_stride] = value;
    }
  }
}

}  // namespace

int64_t orthogonalise_workspace_size(int64_t rows, int64_t cols) {
  const int64_t small = std::min(rows, cols);
  const int64_t large = std::max(rows, cols);
  const int64_t size = padded(Iteration::workspace_size(small, large));
  return is_thin(small, large) ? size + thin_workspace_size(small, large) : size;
}

void orthogonalise(const StridedFloats& input, const StridedFloats& output, int64_t rows, int64_t cols,
                   const NewtonSchulzOptions& options, float* workspace) {
  if (rows > cols) {
    return orthogonalise({input.data, input.column_stride, input.row_stride},
                         {output.data, output.column_stride, output.row_stride}, cols, rows, options, workspace);
  }
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  const bool thin = options.form == NewtonSchulzForm::kGram && is_thin(rows, cols);
  float* thin_workspace = workspace + padded(Iteration::workspace_size(rows, cols));
  if (thin && input.column_stride == 1 && output.column_stride == 1) {
    const ThinResult result = orthogonalise_thin(input.data, input.row_stride, output.data, output.row_stride, rows,
                                                 cols, options, thin_workspace);
    if (result == ThinResult::kDone) return;
  }
  Iteration iteration(rows, cols, workspace);
  iteration.load(input);
  const uint32_t largest = iteration.max_bits();
  if (largest == 0) return fill(output, rows, cols, 0.0f);
  if (largest >= kInfinityBits) return fill(output, rows, cols, std::numeric_limits<float>::quiet_NaN());
  const int exponent = iteration.scale_to_safe_range();
  constexpr size_t kRestartAfter = 2;
  switch (options.form) {
    case NewtonSchulzForm::kGram:
      if (thin) {
        iteration.run_thin(options, thin_workspace);
        break;
      }
      iteration.run_gram(options, exponent, kRestartAfter);
      break;
    case NewtonSchulzForm::kGramPure: iteration.run_gram(options, exponent, options.coefficients.size()); break;
    default: iteration.run_direct(options, exponent); break;
  }
  iteration.store(output);
}

}  // namespace qx::kernels
