// Coefficients, costs and bad input of newton_schulz.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"
#include "quincunx/kernels/newton_schulz/newton_schulz_reference.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;

double after_steps(double value, const std::vector<NewtonSchulzStep>& steps) {
  for (const NewtonSchulzStep& step : steps) {
    const double square = value * value;
    value *= step.a + square * (step.b + square * step.c);
  }
  return value;
}

struct Range {
  double smallest, largest;
};
Range range_after_steps(const std::vector<NewtonSchulzStep>& steps, double from) {
  Range range{std::numeric_limits<double>::infinity(), 0.0};
  for (double value = from; value <= 1.0; value *= 1.0005) {
    const double result = after_steps(value, steps);
    range = {std::min(range.smallest, result), std::max(range.largest, result)};
  }
  return range;
}

TEST(NewtonSchulzCoefficients, PolarExpressConvergesToOneOnItsInterval) {
  const Range five = range_after_steps(newton_schulz_coefficients("polar_express", 5).value(), 1e-3);
  EXPECT_GT(five.smallest, 0.5);
  EXPECT_LT(five.largest, 1.2);
  const Range ten = range_after_steps(newton_schulz_coefficients("polar_express", 10).value(), 1e-3);
  EXPECT_NEAR(ten.smallest, 1.0, 1e-3);
  EXPECT_NEAR(ten.largest, 1.0, 1e-3);
}

TEST(NewtonSchulzCoefficients, PolarExpressIsDividedByItsSafetyFactor) {
  const auto steps = newton_schulz_coefficients("polar_express", 9).value();
  EXPECT_FLOAT_EQ(steps[0].a, 8.28721201814563 / 1.05);
  EXPECT_FLOAT_EQ(steps[0].b, -23.595886519098837 / std::pow(1.05, 3));
  EXPECT_FLOAT_EQ(steps[0].c, 17.300387312530933 / std::pow(1.05, 5));
  EXPECT_EQ(steps[7].a, 1.875f);
  EXPECT_EQ(steps[8].b, -1.25f);
}

// The paper's construction of the first polynomial, u = 1, l = 1e-3, cushion 0.02407327424182761: the error alternates
// with equal size at the ends of [cushion, 1] and at its two extrema; then p(l) and p(u) lie around 1.
TEST(NewtonSchulzCoefficients, FirstPolarExpressPolynomialEquioscillates) {
  const auto step = newton_schulz_coefficients("polar_express", 1).value()[0];
  const double a = step.a * 1.05, b = step.b * std::pow(1.05, 3), c = step.c * std::pow(1.05, 5);
  const auto value = [&](double x) { return a * x + b * x * x * x + c * x * x * x * x * x; };
  const double root = std::sqrt(9 * b * b - 20 * a * c);
  const double peak = value(std::sqrt((-3 * b - root) / (10 * c)));
  const double valley = value(std::sqrt((-3 * b + root) / (10 * c)));
  EXPECT_NEAR(value(1.0), peak, 1e-5);
  EXPECT_NEAR(value(0.02407327424182761), valley, 1e-5);
  EXPECT_NEAR((value(1.0) + value(1e-3)) / 2, 1.0, 1e-5);
}

TEST(NewtonSchulzCoefficients, QuinticAndClassicLandNearOne) {
  const Range quintic = range_after_steps(newton_schulz_coefficients("quintic", 5).value(), 1e-2);
  EXPECT_GT(quintic.smallest, 0.65);
  EXPECT_LT(quintic.largest, 1.35);
  const Range classic = range_after_steps(newton_schulz_coefficients("classic", 5).value(), 1e-2);
  EXPECT_GT(classic.smallest, 0.6);
  EXPECT_LT(classic.largest, 1.25);
}

TEST(NewtonSchulzCoefficients, LastTripleIsRepeated) {
  const auto steps = newton_schulz_coefficients("quintic", 7).value();
  ASSERT_EQ(steps.size(), 7u);
  EXPECT_EQ(steps[6].a, steps[4].a);
  EXPECT_EQ(steps[6].a, 2.8366f);
}

TEST(NewtonSchulzCoefficients, UnknownNameAndCount) {
  EXPECT_THAT(newton_schulz_coefficients("cubic", 5).status().message(), HasSubstr("got \"cubic\""));
  EXPECT_THAT(newton_schulz_coefficients("quintic", 0).status().message(), HasSubstr("num_steps: expected 1"));
  EXPECT_THAT(newton_schulz_form_from_name("fast").status().message(), HasSubstr("got \"fast\""));
  EXPECT_EQ(newton_schulz_form_from_name("gram_pure").value(), NewtonSchulzForm::kGramPure);
}

TEST(NewtonSchulzReference, KeepsAnOrthogonalMatrixUnderTheCubicStep) {
  // a + b = 1 with c = 0 maps singular values of 1 to 1; a normalised 2 x 2 identity has 1 / sqrt 2 instead.
  const std::vector<NewtonSchulzStep> steps(30, NewtonSchulzStep{1.5f, -0.5f, 0.0f});
  const std::array<double, 4> identity{1.0, 0.0, 0.0, 1.0};
  std::array<double, 4> output{};
  newton_schulz_reference(identity.data(), 2, 2, steps, 0.0, output.data());
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(output[i], identity[i], 1e-12);
}

TEST(NewtonSchulzCost, ChoosesTheFormByAspectRatio) {
  EXPECT_EQ(newton_schulz_resolved_form(10, 20, NewtonSchulzForm::kAuto), NewtonSchulzForm::kDirect);
  EXPECT_EQ(newton_schulz_resolved_form(10, 21, NewtonSchulzForm::kAuto), NewtonSchulzForm::kGram);
  EXPECT_EQ(newton_schulz_resolved_form(21, 10, NewtonSchulzForm::kAuto), NewtonSchulzForm::kGram);
  EXPECT_EQ(newton_schulz_resolved_form(1, 99, NewtonSchulzForm::kDirect), NewtonSchulzForm::kDirect);
}

TEST(NewtonSchulzCost, CountsTheProductsOfTheForm) {
  // rows 2, cols 10: a symmetric square costs 8, X X^T 40, Q X 80.
  EXPECT_EQ(newton_schulz_flops(2, 10, 5, NewtonSchulzForm::kDirect), 5.0 * (40 + 8 + 80));
  EXPECT_EQ(newton_schulz_flops(10, 2, 5, NewtonSchulzForm::kGram), 2 * (40 + 80) + 8.0 * (8 + 6));
  EXPECT_EQ(newton_schulz_flops(2, 10, 5, NewtonSchulzForm::kGramPure), 40 + 80 + 8.0 * (9 + 8));
  EXPECT_EQ(newton_schulz_flops(2, 10, 2, NewtonSchulzForm::kGram),
            newton_schulz_flops(2, 10, 2, NewtonSchulzForm::kGramPure));
  // rows 2, cols 32, in double precision, where an operation counts twice: X X^T 128, Q X 256, 17 whole products of 16.
  EXPECT_EQ(newton_schulz_flops(2, 32, 5, NewtonSchulzForm::kGram), 2 * 128 + 256 + 2 * 17 * 16.0);
}

TEST(NewtonSchulzCost, WorkspaceHoldsTheMatrixTwiceAndFiveSquares) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{24, 10240}, {768, 3072}, {512, 512}, {3072, 768}}) {
    const int64_t small = std::min(rows, cols), large = std::max(rows, cols) + 32;
    const int64_t square = (small + 16) * (small + 16);
    EXPECT_LE(newton_schulz_workspace_bytes(rows, cols), 4 * (2 * (small + 16) * large + 5 * square));
    EXPECT_GE(newton_schulz_workspace_bytes(rows, cols), 4 * rows * cols);
  }
}

class NewtonSchulzArguments : public ::testing::Test {
 protected:
  template <size_t kDims>
  TensorView view(size_t offset, const std::array<int64_t, kDims>& shape, DType dtype = DType::kFloat32) {
    return TensorView::contiguous(memory_.data() + offset, dtype, shape).value();
  }
  void expect_error(const TensorView& input, const TensorView& output, StatusCode code, std::string_view part) {
    const Status status = newton_schulz(input, output, options_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  using Matrix = std::array<int64_t, 2>;
  std::vector<float> memory_ = std::vector<float>(400, 1.0f);
  std::vector<NewtonSchulzStep> steps_ = newton_schulz_coefficients("classic", 5).value();
  NewtonSchulzOptions options_{steps_, 1e-7f, NewtonSchulzForm::kAuto};
};

TEST_F(NewtonSchulzArguments, WrongRankShapeAndDtype) {
  expect_error(view(0, std::array<int64_t, 1>{6}), view(100, std::array<int64_t, 1>{6}), StatusCode::kInvalidArgument,
               "input: expected [rows, cols] or [batch, rows, cols]");
  expect_error(view(0, Matrix{2, 3}), view(100, Matrix{3, 2}), StatusCode::kInvalidArgument,
               "output: expected the shape of input, float32[2, 3], got float32[3, 2]");
  expect_error(view(0, Matrix{2, 3}, DType::kFloat16), view(100, Matrix{2, 3}), StatusCode::kTypeError,
               "input: expected float32, got float16[2, 3]");
  expect_error(view(0, Matrix{2, 3}), view(100, Matrix{2, 3}, DType::kInt32), StatusCode::kTypeError, "output:");
}

TEST_F(NewtonSchulzArguments, OverlapThatIsNotInPlace) {
  expect_error(view(0, Matrix{2, 3}), view(4, Matrix{2, 3}), StatusCode::kInvalidArgument, "overlaps input");
  const auto shared = TensorView::strided(memory_.data() + 100, DType::kFloat32, Matrix{2, 3}, Matrix{0, 1}).value();
  expect_error(view(0, Matrix{2, 3}), shared, StatusCode::kInvalidArgument, "let elements share memory");
}

TEST_F(NewtonSchulzArguments, WrongOptions) {
  const auto input = view(0, Matrix{2, 3}), output = view(100, Matrix{2, 3});
  options_.eps = -1.0f;
  expect_error(input, output, StatusCode::kInvalidArgument, "eps: expected a finite number");
  options_.eps = std::numeric_limits<float>::infinity();
  expect_error(input, output, StatusCode::kInvalidArgument, "eps: expected a finite number");
  options_.eps = 0.0f;
  steps_[1].b = std::numeric_limits<float>::quiet_NaN();
  expect_error(input, output, StatusCode::kInvalidArgument, "coefficients[1]");
  options_.coefficients = {};
  expect_error(input, output, StatusCode::kInvalidArgument, "coefficients: expected at least one triple");
  options_.coefficients = std::span(steps_).first(1);
  options_.form = static_cast<NewtonSchulzForm>(77);
  expect_error(input, output, StatusCode::kInvalidArgument, "form: expected a value of the enumeration, got 77");
}

TEST_F(NewtonSchulzArguments, EmptyMatricesAreFine) {
  const auto empty = TensorView::contiguous(nullptr, DType::kFloat32, Matrix{0, 5}).value();
  EXPECT_TRUE(newton_schulz(empty, empty, options_).ok());
  const auto no_columns = TensorView::contiguous(nullptr, DType::kFloat32, std::array<int64_t, 3>{2, 4, 0}).value();
  EXPECT_TRUE(newton_schulz(no_columns, no_columns, options_).ok());
}

}  // namespace
}  // namespace qx::kernels
