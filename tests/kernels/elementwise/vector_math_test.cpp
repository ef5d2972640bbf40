// The errors that vector_math-inl.h states, measured against the double-precision C library over the whole f32 range.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "quincunx/kernels/elementwise/unary.h"
#include "quincunx/kernels/elementwise/unary_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Bound {
  UnaryFunction function;
  const char* name;
  double ulps;                     // of the exact result
  double absolute;                 // allowed besides
  double relative_to_input;        // allowed besides, times |x|
  double relative_to_product = 0;  // allowed besides, times |x| and the result
};

constexpr Bound kBounds[] = {
    {UnaryFunction::kExp, "Exp", 1.25, 0, 0},
    {UnaryFunction::kLog, "Log", 1, 0, 0},
    {UnaryFunction::kErf, "Erf", 1.5, 0, 0},
    {UnaryFunction::kTanh, "Tanh", 2, 0, 0},
    {UnaryFunction::kSigmoid, "Sigmoid", 2, 0, 0},
    {UnaryFunction::kSilu, "Silu", 3, 0x1p-142, 0},
    {UnaryFunction::kGeluErf, "GeluErf", 0, 0x1p-149, 0x1p-22},
    {UnaryFunction::kGeluTanh, "GeluTanh", 0, 0x1p-149, 0x1p-22},
    {UnaryFunction::kSin, "Sin", 2, 0, 0},
    {UnaryFunction::kCos, "Cos", 2, 0, 0},
    {UnaryFunction::kRsqrt, "Rsqrt", 1.5, 0, 0},
    {UnaryFunction::kRelu, "Relu", 0, 0, 0},
    {UnaryFunction::kRelu6, "Relu6", 0, 0, 0},
    {UnaryFunction::kGeluQuick, "GeluQuick", 4, 0x1p-140, 0, 0x1p-21},
    {UnaryFunction::kHardsigmoid, "Hardsigmoid", 0, 0x1p-22, 0},
    {UnaryFunction::kHardswish, "Hardswish", 0, 0x1p-149, 0x1p-22},
    {UnaryFunction::kSoftplus, "Softplus", 3, 0, 0},
};

// The distance of neighbouring f32 numbers at |exact|; below the normal range it is the smallest denormal. From the
// bits of the exponent: ilogb and ldexp would take most of the time of a run over all floats.
double ulp(double exact) {
  const uint64_t exponent = std::bit_cast<uint64_t>(exact) >> 52 & 0x7ff;
  return std::bit_cast<double>((std::clamp<uint64_t>(exponent, 1023 - 126, 1023 + 127) - 23) << 52);
}

// The error as a multiple of what is allowed; infinity for a wrong class of result.
double error_ratio(const Bound& bound, float x, double exact, float actual) {
  if (std::isnan(exact) || std::isnan(actual)) return std::isnan(exact) && std::isnan(actual) ? 0 : kInfinity;
  if (static_cast<float>(exact) == actual) return 0;
  if (std::isinf(exact)) return kInfinity;
  const double allowed = bound.ulps * ulp(exact) + bound.absolute + bound.relative_to_input * std::abs(x) +
                         bound.relative_to_product * std::abs(x * exact);
  // One step from the largest number is infinity: compare as if the exponent range went on.
  const double value = std::isinf(actual) ? std::copysign(0x1p128, actual) : actual;
  return std::abs(value - exact) / allowed;
}

std::vector<float> evaluate(UnaryFunction function, const std::vector<float>& x) {
  std::vector<float> y(x.size(), -12345.0f);
  const int64_t shape[] = {static_cast<int64_t>(x.size())};
  const auto in = TensorView::contiguous(const_cast<float*>(x.data()), DType::kFloat32, shape);
  const auto out = TensorView::contiguous(y.data(), DType::kFloat32, shape);
  const Status status = apply_unary(function, in.value(), out.value());
  EXPECT_TRUE(status.ok()) << status;
  return y;
}

// An odd step through the bit patterns visits all low bits. QX_EXHAUSTIVE_TESTS is another one: 1 visits all 2^32,
// which takes 30 ns a pattern and function of a thread for three targets, 20 minutes for all functions on two free
// cores.
uint64_t pattern_step() {
  const char* step = std::getenv("QX_EXHAUSTIVE_TESTS");
  return step != nullptr && std::atoi(step) > 0 ? static_cast<uint64_t>(std::atoi(step)) | 1 : 4099;
}

class VectorMath : public testing::TestWithParam<Bound> {};

struct Worst {
  double ratio = 0;
  float x = 0;
  size_t target = 0;  // its place among those of this machine
};

// The largest error of the results of all targets; the exact ones are computed once for all.
Worst worst_of(const Bound& bound, const std::vector<float>& x, const std::vector<std::vector<float>>& results) {
  Worst worst;
  std::mutex mutex;
  parallel_for(0, static_cast<int64_t>(x.size()), 1 << 14, [&](int64_t begin, int64_t end) {
    Worst mine;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const double exact = unary_reference(bound.function, x[i]);
      for (size_t target = 0; target < results.size(); ++target) {
        const double ratio = error_ratio(bound, x[i], exact, results[target][i]);
        if (ratio > mine.ratio) mine = {ratio, x[i], target};
      }
    }
    const std::lock_guard lock(mutex);
    if (mine.ratio > worst.ratio) worst = mine;
  });
  return worst;
}

TEST_P(VectorMath, StaysWithinTheStatedErrorOverAllFloats) {
  const Bound bound = GetParam();
  const uint64_t step = pattern_step();
  // A second thread pays for many patterns only.
  set_num_threads(step < 1000 ? 0 : 1);
  std::vector<float> x(1 << 18);
  for (uint64_t pattern = 0; pattern >> 32 == 0;) {
    for (float& value : x) {
      value = std::bit_cast<float>(static_cast<uint32_t>(pattern));
      pattern += step;
    }
    std::vector<std::vector<float>> results;
    for_each_dispatch_target([&] { results.push_back(evaluate(bound.function, x)); });
    const Worst worst = worst_of(bound, x, results);
    EXPECT_LE(worst.ratio, 1.0) << bound.name << "(" << worst.x << ") on target " << worst.target;
    if (worst.ratio > 1.0) break;
  }
  set_num_threads(0);
}

TEST_P(VectorMath, HandlesNaNInfinitiesZerosAndDenormals) {
  const Bound bound = GetParam();
  const std::vector<float> x = {
      kNaN, -kNaN, kInfinity, -kInfinity, 0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-126f, 0x1.fffffep127f,
      -0x1.fffffep127f, 88.72283f, 88.72284f, -87.33655f, -103.9721f, -103.9722f, 1.0f, 0.625f, 0.925f, 0.99999994f,
      // Near multiples of pi/2, among them the float that comes nearest to one, and either side of 2^28.
      1.5707963f, 3.1415927f, 0x1.4998p+63f, 0x1.f9cbep+7f, 0x1.fffffep+27f, 0x1p28f, -0x1.000002p+28f, 16367173e29f,
      -3.0f, 3.0f, 6.0f, -2.9999998f};
  for_each_dispatch_target([&] {
    const std::vector<float> y = evaluate(bound.function, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = unary_reference(bound.function, x[i]);
      EXPECT_LE(error_ratio(bound, x[i], exact, y[i]), 1.0) << bound.name << "(" << x[i] << ") gave " << y[i];
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Functions, VectorMath, testing::ValuesIn(kBounds),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace qx::kernels
