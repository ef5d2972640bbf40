#include "quincunx/kernels/gemm/symmetric_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/gemm/matrices.h"
#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;

TEST(Gram, EqualsTheReferenceAndIsExactlySymmetric) {
  for_each_dispatch_target([] {
    for (const int64_t rows : {1, 2, 15, 16, 17, 47, 70, 130}) {
      for (const int64_t inner : {1, 33, 900}) {
        auto a = random_floats(rows * inner, 1);
        std::vector<float> output(static_cast<size_t>(rows * rows), 9.0f);
        ASSERT_TRUE(gram(matrix(a, rows, inner), matrix(output, rows, rows), 0.5f).ok());
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < rows; ++j) {
            double sum = 0.0, magnitude = 0.0;
            for (int64_t k = 0; k < inner; ++k) {
              const double term = static_cast<double>(a[i * inner + k]) * a[j * inner + k];
              sum += term;
              magnitude += std::abs(term);
            }
            // |sum computed - exact| <= inner * 2^-24 * sum |a b| for any order of summation.
            ASSERT_NEAR(output[i * rows + j], 0.5 * sum, static_cast<double>(inner + 2) * 0x1p-24 * magnitude);
            ASSERT_EQ(output[i * rows + j], output[j * rows + i]);
          }
        }
      }
    }
  });
}

TEST(Gram, TakesTransposedInputAndStridedOutput) {
  constexpr int64_t kRows = 20, kInner = 7;
  auto a = random_floats(kRows * kInner, 2);
  const TensorView columns =
      TensorView::strided(a.data(), DType::kFloat32, std::array{kRows, kInner}, std::array{int64_t{1}, kRows}).value();
  std::vector<float> rows_first(static_cast<size_t>(kRows * kInner));
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t k = 0; k < kInner; ++k) rows_first[i * kInner + k] = a[k * kRows + i];
  }
  std::vector<float> expected(kRows * kRows), output(kRows * 30, 5.0f);
  ASSERT_TRUE(gram(matrix(rows_first, kRows, kInner), matrix(expected, kRows, kRows)).ok());
  const TensorView wide =
      TensorView::strided(output.data(), DType::kFloat32, std::array{kRows, kRows}, std::array{int64_t{30}, int64_t{1}})
          .value();
  ASSERT_TRUE(gram(columns, wide).ok());
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < 30; ++j) {
      ASSERT_EQ(output[i * 30 + j], j < kRows ? expected[i * kRows + j] : 5.0f);
    }
  }
}

TEST(Gram, ThreadsDoNotChangeABit) {
  auto a = random_floats(200 * 300, 3);
  std::vector<float> expected;
  for (const int threads : {1, 2, 7}) {
    set_num_threads(threads);
    std::vector<float> output(200 * 200);
    ASSERT_TRUE(gram(matrix(a, 200, 300), matrix(output, 200, 200)).ok());
    if (expected.empty()) expected = output;
    EXPECT_EQ(output, expected) << threads << " threads";
  }
  set_num_threads(0);
}

TEST(SymmetricPolynomial, EqualsTheReference) {
  for_each_dispatch_target([] {
    for (const int64_t rows : {1, 17, 70}) {
      auto a = random_floats(rows * rows, 4);
      std::vector<float> x(a.size()), output(a.size(), 9.0f);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < rows; ++j) x[i * rows + j] = a[std::min(i, j) * rows + std::max(i, j)];
      }
      ASSERT_TRUE(symmetric_polynomial(matrix(x, rows, rows), {3.0f, -4.0f, 2.0f}, matrix(output, rows, rows)).ok());
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < rows; ++j) {
          double square = 0.0, magnitude = 0.0;
          for (int64_t k = 0; k < rows; ++k) {
            const double term = static_cast<double>(x[i * rows + k]) * x[k * rows + j];
            square += term;
            magnitude += std::abs(term);
          }
          const double linear = 4.0 * x[i * rows + j];
          const double want = (i == j ? 3.0 : 0.0) - linear + 2.0 * square;
          const double bound = static_cast<double>(rows + 4) * 0x1p-24 * (2.0 * magnitude + std::abs(linear) + 3.0);
          ASSERT_NEAR(output[i * rows + j], want, bound);
        }
      }
    }
  });
}

TEST(SymmetricProducts, BadInputNamesTheArgument) {
  std::vector<float> values(100, 1.0f), output(100);
  EXPECT_THAT(gram(matrix(values, 3, 5), matrix(output, 3, 4)).message(), HasSubstr("output: expected [3, 3]"));
  EXPECT_THAT(gram(matrix(values, 3, 5), matrix(values, 3, 3)).message(), HasSubstr("overlaps a"));
  EXPECT_THAT(gram(vector(values), matrix(output, 3, 3)).message(), HasSubstr("a: expected two dimensions"));
  EXPECT_THAT(symmetric_polynomial(matrix(values, 3, 5), {}, matrix(output, 3, 3)).message(),
              HasSubstr("x: expected a square matrix"));
  EXPECT_THAT(symmetric_polynomial(matrix(values, 3, 3), {}, matrix(values, 3, 3)).message(), HasSubstr("overlaps x"));
  std::vector<float> none;
  EXPECT_TRUE(gram(matrix(none, 0, 5), matrix(none, 0, 0)).ok());
  EXPECT_TRUE(gram(matrix(none, 2, 0), matrix(output, 2, 2)).ok());
  EXPECT_EQ(output[0], 0.0f);
  std::vector<float> zeros(20 * 20, 1.0f);
  const TensorView transposed =
      TensorView::strided(nullptr, DType::kFloat32, std::array<int64_t, 2>{20, 0}, std::array<int64_t, 2>{1, 20})
          .value();
  EXPECT_TRUE(gram(transposed, matrix(zeros, 20, 20)).ok());
  EXPECT_EQ(zeros, std::vector<float>(20 * 20, 0.0f));
}

TEST(SymmetricProducts, KeepNaN) {
  std::vector<float> values(20, 1.0f), output(16);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(gram(matrix(values, 4, 5), matrix(output, 4, 4)).ok());
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(output[i]));
    EXPECT_TRUE(std::isnan(output[4 * i]));
  }
  EXPECT_EQ(output[5], 5.0f);
}

}  // namespace
}  // namespace qx::kernels
