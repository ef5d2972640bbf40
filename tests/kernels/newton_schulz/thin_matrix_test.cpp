#include "quincunx/kernels/newton_schulz/thin_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/gemm/matrices.h"
#include "quincunx/kernels/newton_schulz/newton_schulz_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

ThinResult run(const std::vector<float>& source, std::vector<float>& destination, int64_t rows, int64_t cols) {
  const auto steps = newton_schulz_coefficients("polar_express", 5).value();
  NewtonSchulzOptions options;
  options.coefficients = steps;
  options.eps = 0.0f;
  options.form = NewtonSchulzForm::kGram;
  std::vector<float> workspace(static_cast<size_t>(thin_workspace_size(rows, cols)) + 16);
  return orthogonalise_thin(source.data(), cols, destination.data(), cols, rows, cols, options, workspace.data());
}

TEST(ThinMatrix, EqualsTheReferenceForRaggedSizes) {
  for_each_dispatch_target([] {
    // Columns below one vector, in one pass, and in two passes of 2048; rows that fill tiles and squares, and do not.
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                     {1, 33},
                                     {3, 50},
                                     {4, 64},
                                     {7, 113},
                                     {8, 2048},
                                     {13, 2100},
                                     {24, 1027},
                                     {33, 530}}) {
      const auto input = random_floats(rows * cols, 1);
      std::vector<float> output(input.size(), 7.0f);
      ASSERT_EQ(run(input, output, rows, cols), ThinResult::kDone);
      const std::vector<double> exact(input.begin(), input.end());
      std::vector<double> expected(exact.size());
      newton_schulz_reference(exact.data(), rows, cols, newton_schulz_coefficients("polar_express", 5).value(), 0.0,
                              expected.data());
      // The small matrices are exact to 2^-50: what is left are 33 roundings of one product of numbers below 1.
      for (size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], 33 * 0x1p-24) << rows << " rows";
    }
  });
}

TEST(ThinMatrix, WorksInPlaceWithTheSameBits) {
  auto input = random_floats(5 * 2500, 2);
  std::vector<float> output(input.size());
  ASSERT_EQ(run(input, output, 5, 2500), ThinResult::kDone);
  ASSERT_EQ(run(input, input, 5, 2500), ThinResult::kDone);
  EXPECT_EQ(input, output);
}

TEST(ThinMatrix, ThreadsDoNotChangeABit) {
  const auto input = random_floats(6 * 9000, 3);
  std::vector<float> expected(input.size()), output(input.size());
  set_num_threads(1);
  ASSERT_EQ(run(input, expected, 6, 9000), ThinResult::kDone);
  for (const int threads : {2, 3, 7}) {
    set_num_threads(threads);
    ASSERT_EQ(run(input, output, 6, 9000), ThinResult::kDone);
    EXPECT_EQ(output, expected) << threads << " threads";
  }
  set_num_threads(0);
}

TEST(ThinMatrix, NamesWhatItLeavesToOthersAndWritesNothing) {
  std::vector<float> input(64, 0.0f), output(64, 7.0f);
  EXPECT_EQ(run(input, output, 2, 32), ThinResult::kZero);
  input[40] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run(input, output, 2, 32), ThinResult::kNotFinite);
  input[40] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(run(input, output, 2, 32), ThinResult::kNotFinite);
  input[40] = 1e-30f;
  EXPECT_EQ(run(input, output, 2, 32), ThinResult::kOutOfRange);
  input[40] = 1e30f;
  EXPECT_EQ(run(input, output, 2, 32), ThinResult::kOutOfRange);
  EXPECT_EQ(output, std::vector<float>(64, 7.0f));
}

TEST(ThinMatrix, IsChosenForFewRowsAndManyColumns) {
  EXPECT_TRUE(is_thin(24, 1024));
  EXPECT_FALSE(is_thin(24, 383));
  EXPECT_FALSE(is_thin(129, 4096));
}

}  // namespace
}  // namespace qx::kernels
