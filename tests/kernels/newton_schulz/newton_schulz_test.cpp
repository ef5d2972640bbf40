#include "quincunx/kernels/newton_schulz/newton_schulz.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

using Form = NewtonSchulzForm;
using Floats = std::vector<float>;

struct Size {
  int64_t rows, cols;
};

TensorView matrix(Floats& data, const Size& size) {
  return TensorView::contiguous(data.data(), DType::kFloat32, std::array{size.rows, size.cols}).value();
}

Floats random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// The recurrence of the header in double precision, written independently of the library: X X^T X by columns.
std::vector<double> expected_result(const Floats& input, const Size& size, const std::vector<NewtonSchulzStep>& steps) {
  const auto [rows, cols] = size;
  std::vector<double> x(input.begin(), input.end());
  double largest = 0.0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  double norm = 0.0;
  for (double& value : x) norm += (value / largest) * (value / largest);
  for (double& value : x) value /= largest * std::sqrt(norm);
  std::vector<double> gram(static_cast<size_t>(cols * cols));
  // Y = X (X^T X), with the cols x cols Gram matrix.
  const auto times_gram = [&](const std::vector<double>& left) {
    std::vector<double> out(left.size(), 0.0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < cols; ++k) {
        for (int64_t j = 0; j < cols; ++j) out[i * cols + j] += left[i * cols + k] * gram[k * cols + j];
      }
    }
    return out;
  };
  for (const NewtonSchulzStep& step : steps) {
    std::fill(gram.begin(), gram.end(), 0.0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < cols; ++k) {
        for (int64_t j = 0; j < cols; ++j) gram[k * cols + j] += x[i * cols + k] * x[i * cols + j];
      }
    }
    const std::vector<double> cubed = times_gram(x);
    const std::vector<double> fifth = times_gram(cubed);
    for (size_t i = 0; i < x.size(); ++i) x[i] = step.a * x[i] + step.b * cubed[i] + step.c * fifth[i];
  }
  return x;
}

double max_error(const Floats& output, const std::vector<double>& expected) {
  double error = 0.0;
  for (size_t i = 0; i < output.size(); ++i) {
    const double difference = std::abs(output[i] - expected[i]);
    error = difference <= error ? error : difference;  // a NaN becomes the error
  }
  return error;
}

std::vector<NewtonSchulzStep> polar_express(int steps = 5) {
  return newton_schulz_coefficients("polar_express", steps).value();
}

Floats run(Floats input, const Size& size, const std::vector<NewtonSchulzStep>& steps, Form form) {
  Floats output(input.size(), 7.0f);
  NewtonSchulzOptions options;
  options.coefficients = steps;
  options.eps = 0.0f;
  options.form = form;
  EXPECT_TRUE(newton_schulz(matrix(input, size), matrix(output, size), options).ok());
  return output;
}

// A rounding error of the first step is amplified by the slopes of the polynomials that follow: up to their product
// near zero, 8.3 * 4.1 * 3.9 * 3.3 * 2.3 / 1.05^5 = 790. Of a matrix that is well conditioned, singular values grow
// only until they are near 1, which happens before: 64 units in the last place of 1 cover it.
constexpr double kWellConditioned = 64 * 0x1p-24;
// Singular values at the level of rounding errors are amplified in full; eight such errors a step meet in an element.
constexpr double kIllConditioned = 790 * 8 * 0x1p-24;

class NewtonSchulzOnEachTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, NewtonSchulzOnEachTarget, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST_P(NewtonSchulzOnEachTarget, EqualsTheRecurrenceForWideAndTallMatrices) {
  for (const Size& wide : {Size{1, 1},
                           {1, 7},
                           {2, 9},
                           {3, 40},
                           {4, 17},
                           {5, 33},
                           {13, 64},
                           {14, 47},
                           {24, 100},
                           {29, 61},
                           {8, 1100},
                           {40, 96}}) {
    for (const Size& size : {wide, Size{wide.cols, wide.rows}}) {
      if (size.cols > 200) continue;  // the independent reference is cubic in the columns
      const Floats input = random_floats(size.rows * size.cols, 1);
      const auto expected = expected_result(input, size, polar_express());
      for (const Form form : {Form::kAuto, Form::kDirect, Form::kGram}) {
        EXPECT_LT(max_error(run(input, size, polar_express(), form), expected), kWellConditioned)
            << size.rows << "x" << size.cols << " form " << static_cast<int>(form);
      }
    }
  }
}

TEST_P(NewtonSchulzOnEachTarget, PackedPathEqualsTheRecurrence) {
  const Size size{270, 261};  // beyond the rows that are read unpacked
  const Floats input = random_floats(size.rows * size.cols, 2);
  const auto expected = expected_result(input, size, polar_express());
  for (const Form form : {Form::kDirect, Form::kGram}) {
    // Square matrices have small singular values: n random ones reach down to about 1 / n of the largest.
    EXPECT_LT(max_error(run(input, size, polar_express(), form), expected), kIllConditioned);
  }
}

TEST_P(NewtonSchulzOnEachTarget, RankOneGivesTheOuterProductOfItsVectors) {
  const Size size{12, 50};
  const Floats u = random_floats(size.rows, 3), v = random_floats(size.cols, 4);
  Floats input(static_cast<size_t>(size.rows * size.cols));
  for (int64_t i = 0; i < size.rows; ++i) {
    for (int64_t j = 0; j < size.cols; ++j) input[i * size.cols + j] = u[i] * v[j];
  }
  const auto expected = expected_result(input, size, polar_express());
  for (const Form form : {Form::kDirect, Form::kGram}) {
    EXPECT_LT(max_error(run(input, size, polar_express(), form), expected), kIllConditioned);
  }
}

// The second size is one whose Gram form keeps its small matrices in double precision instead of a restart.
TEST_P(NewtonSchulzOnEachTarget, GramIsAsAccurateAsDirectForRankFourWithNoise) {
  for (const Size& size : {Size{24, 150}, Size{10, 165}}) {
    const Floats left = random_floats(size.rows * 4, 5), right = random_floats(4 * size.cols, 6);
    Floats input = random_floats(size.rows * size.cols, 7);
    for (float& value : input) value *= 1e-3f;
    for (int64_t i = 0; i < size.rows; ++i) {
      for (int64_t j = 0; j < size.cols; ++j) {
        for (int64_t k = 0; k < 4; ++k) input[i * size.cols + j] += left[i * 4 + k] * right[k * size.cols + j];
      }
    }
    const auto expected = expected_result(input, size, polar_express());
    const double direct = max_error(run(input, size, polar_express(), Form::kDirect), expected);
    EXPECT_LT(direct, kIllConditioned);
    EXPECT_LT(max_error(run(input, size, polar_express(), Form::kGram), expected), kIllConditioned);
    // Pure Gram squares the condition number: stated in docs/kernels.md as up to 30 times less accurate.
    EXPECT_LT(max_error(run(input, size, polar_express(), Form::kGramPure), expected), 30 * kIllConditioned);
  }
}

TEST_P(NewtonSchulzOnEachTarget, ScaleDoesNotChangeTheResult) {
  for (const Size& size : {Size{6, 20}, Size{4, 70}}) {
    const Floats input = random_floats(size.rows * size.cols, 8);
    const Floats expected = run(input, size, polar_express(), Form::kDirect);
    for (const int exponent : {-100, -60, -30, 30, 60, 100}) {
      for (const Form form : {Form::kDirect, Form::kGram}) {
        Floats scaled = input;
        for (float& value : scaled) value = std::scalbn(value, exponent);
        const Floats output = run(scaled, size, polar_express(), form);
        for (size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], kWellConditioned) << exponent;
      }
    }
    for (const float factor : {1e-30f, 1e30f}) {
      Floats scaled = input;
      for (float& value : scaled) value *= factor;
      const Floats output = run(scaled, size, polar_express(), Form::kDirect);
      for (size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], kWellConditioned) << factor;
    }
  }
}

TEST_P(NewtonSchulzOnEachTarget, DenormalAndHugeMatricesAreOrthogonalised) {
  constexpr float kDenormal = 1e-41f;
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const float value : {kDenormal, std::numeric_limits<float>::denorm_min(), kMax}) {
    Floats input{value, 0.0f, 0.0f, 0.0f, -value, 0.0f};
    const Size size{2, 3};
    const Floats unit{1.0f, 0.0f, 0.0f, 0.0f, -1.0f, 0.0f};
    const auto expected = expected_result(unit, size, polar_express());
    EXPECT_LT(max_error(run(input, size, polar_express(), Form::kDirect), expected), kWellConditioned) << value;
  }
}

TEST_P(NewtonSchulzOnEachTarget, ZerosGiveZeros) {
  const Floats zeros(24, 0.0f);
  for (const Form form : {Form::kDirect, Form::kGram, Form::kGramPure}) {
    EXPECT_EQ(run(zeros, {4, 6}, polar_express(), form), zeros);
  }
}

TEST_P(NewtonSchulzOnEachTarget, ZeroRowsStayZero) {
  const Size size{5, 14};
  Floats input = random_floats(size.rows * size.cols, 9);
  for (int64_t j = 0; j < size.cols; ++j) input[2 * size.cols + j] = 0.0f;
  for (const Form form : {Form::kDirect, Form::kGram}) {
    const Floats output = run(input, size, polar_express(), form);
    EXPECT_LT(max_error(output, expected_result(input, size, polar_express())), kWellConditioned);
    for (int64_t j = 0; j < size.cols; ++j) EXPECT_EQ(output[2 * size.cols + j], 0.0f);
  }
}

TEST_P(NewtonSchulzOnEachTarget, NaNAndInfinitySpoilTheirOwnMatrixOnly) {
  const Size size{3, 8};
  Floats batch = random_floats(3 * size.rows * size.cols, 10);
  const int64_t count = size.rows * size.cols;
  const Floats first(batch.begin(), batch.begin() + count);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    batch[count + 5] = bad;
    Floats output(batch.size());
    const std::array shape{int64_t{3}, size.rows, size.cols};
    const auto input_view = TensorView::contiguous(batch.data(), DType::kFloat32, shape).value();
    const auto output_view = TensorView::contiguous(output.data(), DType::kFloat32, shape).value();
    NewtonSchulzOptions options;
    const auto steps = polar_express();
    options.coefficients = steps;
    options.eps = 0.0f;
    ASSERT_TRUE(newton_schulz(input_view, output_view, options).ok());
    for (int64_t i = 0; i < count; ++i) EXPECT_TRUE(std::isnan(output[count + i]));
    EXPECT_EQ(Floats(output.begin(), output.begin() + count), run(first, size, steps, Form::kAuto));
    for (int64_t i = 2 * count; i < 3 * count; ++i) EXPECT_TRUE(std::isfinite(output[i]));
  }
}

TEST_P(NewtonSchulzOnEachTarget, ThreadsAndBatchDoNotChangeABit) {
  for (const Size& size : {Size{10, 2300}, Size{60, 50}, Size{100, 230}}) {
    constexpr int64_t kBatch = 5;
    const int64_t count = size.rows * size.cols;
    Floats batch = random_floats(kBatch * count, 11);
    const std::array shape{kBatch, size.rows, size.cols};
    const auto steps = polar_express();
    NewtonSchulzOptions options;
    options.coefficients = steps;
    options.eps = 0.0f;
    Floats expected;
    for (int64_t i = 0; i < kBatch; ++i) {
      const Floats input(batch.begin() + i * count, batch.begin() + (i + 1) * count);
      const Floats one = run(input, size, steps, Form::kAuto);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      Floats output(batch.size());
      ASSERT_TRUE(newton_schulz(TensorView::contiguous(batch.data(), DType::kFloat32, shape).value(),
                                TensorView::contiguous(output.data(), DType::kFloat32, shape).value(), options)
                      .ok());
      EXPECT_EQ(std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)), 0) << threads;
    }
    set_num_threads(0);
  }
}

TEST_P(NewtonSchulzOnEachTarget, StridesAndInPlaceGiveTheSameBits) {
  for (const Size& size : {Size{9, 21}, Size{5, 83}}) {
    Floats input = random_floats(size.rows * size.cols, 12);
    const Floats expected = run(input, size, polar_express(), Form::kAuto);
    const auto steps = polar_express();
    NewtonSchulzOptions options;
    options.coefficients = steps;
    options.eps = 0.0f;

    // Every second element of every second row, to columns first.
    Floats spread(static_cast<size_t>(4 * size.rows * size.cols)), columns(input.size());
    for (int64_t i = 0; i < size.rows; ++i) {
      for (int64_t j = 0; j < size.cols; ++j) spread[i * 4 * size.cols + 2 * j] = input[i * size.cols + j];
    }
    const std::array shape{size.rows, size.cols};
    const auto from = TensorView::strided(spread.data(), DType::kFloat32, shape, std::array{4 * size.cols, int64_t{2}});
    const auto to = TensorView::strided(columns.data(), DType::kFloat32, shape, std::array{int64_t{1}, size.rows});
    ASSERT_TRUE(newton_schulz(from.value(), to.value(), options).ok());
    for (int64_t i = 0; i < size.rows; ++i) {
      for (int64_t j = 0; j < size.cols; ++j) ASSERT_EQ(columns[j * size.rows + i], expected[i * size.cols + j]);
    }
    ASSERT_TRUE(newton_schulz(matrix(input, size), matrix(input, size), options).ok());
    EXPECT_EQ(input, expected);
  }
}

}  // namespace
}  // namespace qx::kernels
