#include "quincunx/tile/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "quincunx/parallel/parallel_for.h"
#include "tile/programs.h"

namespace qx::tile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Shape = std::vector<int64_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kUlp = 0x1p-23;

template <typename T>
constexpr DType kDType = DType::kFloat32;
template <>
constexpr DType kDType<double> = DType::kFloat64;
template <>
constexpr DType kDType<int32_t> = DType::kInt32;
template <>
constexpr DType kDType<int64_t> = DType::kInt64;
template <>
constexpr DType kDType<uint8_t> = DType::kUInt8;
template <>
constexpr DType kDType<BFloat16> = DType::kBFloat16;

template <typename T>
TensorView view(std::vector<T>& data, const Shape& shape) {
  return TensorView::contiguous(data.data(), kDType<T>, shape).value();
}

std::vector<float> normal(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0f, 2.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

// Row lengths: one, less than a vector, ragged, a block, just more, several blocks.
class TileRows : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Lengths, TileRows, testing::Values(1, 3, 17, 1023, 1024, 1025, 5000));

// The difference from the maximum is rounded, which exp() turns into a relative error of |x - max| / 2 units, at most
// 10 here; exp itself has 1, the quotient 1.
TEST_P(TileRows, SoftmaxEqualsDouble) {
  const int64_t length = GetParam();
  std::vector<float> x = normal(3 * length, 1);
  std::vector<float> y(x.size());
  ASSERT_TRUE(run(parse(kSoftmax).value(), {{view(x, {3, length})}}, {{view(y, {3, length})}}).ok());
  for (int64_t row = 0; row < 3; ++row) {
    const float* in = x.data() + row * length;
    const double highest = *std::max_element(in, in + length);
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += std::exp(in[i] - highest);
    for (int64_t i = 0; i < length; ++i) {
      const double expected = std::exp(in[i] - highest) / sum;
      ASSERT_NEAR(y[static_cast<size_t>(row * length + i)], expected, 12 * kUlp * expected + 1e-37) << row << " " << i;
    }
  }
}

// Five roundings of half a unit each, and rsqrt has two.
TEST_P(TileRows, RmsNormEqualsDouble) {
  const int64_t length = GetParam();
  std::vector<float> numbers = normal(2 * length, 2);
  std::vector<BFloat16> x;
  for (const float number : numbers) x.emplace_back(number);
  std::vector<float> weight = normal(length, 3);
  std::vector<float> y(x.size());
  std::vector<float> means(2);
  const std::vector<TensorView> inputs = {view(x, {2, length}), view(weight, {length})};
  const std::vector<TensorView> outputs = {view(y, {2, length}), view(means, {2})};
  ASSERT_TRUE(run(parse(kRmsNorm).value(), inputs, outputs).ok());
  for (int64_t row = 0; row < 2; ++row) {
    double sum = 0;
    const auto in = [&](int64_t i) {
      return static_cast<double>(static_cast<float>(x[static_cast<size_t>(row * length + i)]));
    };
    for (int64_t i = 0; i < length; ++i) sum += in(i)*in(i);
    const double mean = sum / static_cast<double>(length);
    EXPECT_NEAR(means[static_cast<size_t>(row)], mean, 2 * kUlp * mean);
    for (int64_t i = 0; i < length; ++i) {
      const double expected = in(i) / std::sqrt(mean + 1e-6) * weight[static_cast<size_t>(i)];
      ASSERT_NEAR(y[static_cast<size_t>(row * length + i)], expected, 5 * kUlp * std::fabs(expected)) << i;
    }
  }
}

TEST(TileInterpreter, GivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> x = normal(70 * 1500, 4);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    results.emplace_back(x.size());
    ASSERT_TRUE(run(parse(kSoftmax).value(), {{view(x, {70, 1500})}}, {{view(results.back(), {70, 1500})}}).ok());
  }
  set_num_threads(0);
  EXPECT_EQ(results[0], results[1]);
}

TEST(TileInterpreter, WalksStridesAndBroadcasts) {
  const Program add = parse(
                          "tile 1\naxes 3\ninput float32 [0, 1, 2]\ninput float32 [2, 0]\noutput float32 [0, 1, 2]\n"
                          "%0 = load float32 0\n%1 = load float32 1\n%2 = add float32 %0 %1\n%3 = store float32 %2 0\n")
                          .value();
  std::vector<float> a(2 * 4);  // [2, 1, 4]: axis 1 repeats it
  std::vector<float> b(4 * 2);  // [4, 2]: axes 2 and 0, walked across
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(b.begin(), b.end(), 100.0f);
  std::vector<float> y(2 * 3 * 4);
  const std::vector<TensorView> inputs = {view(a, {2, 1, 4}), view(b, {4, 2})};
  ASSERT_TRUE(run(add, inputs, {{view(y, {2, 3, 4})}}).ok());
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      for (size_t k = 0; k < 4; ++k) EXPECT_EQ(y[(i * 3 + j) * 4 + k], a[i * 4 + k] + b[k * 2 + i]) << i << j << k;
    }
  }
}

TEST(TileInterpreter, LeavesTheGapsOfAStridedOutput) {
  const Program copy = parse(
                           "tile 1\naxes 2\ninput float32 [0, 1]\noutput float32 [0, 1]\n%0 = load float32 0\n"
                           "%1 = store float32 %0 0\n")
                           .value();
  std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> y(8, -1.0f);
  const auto target = TensorView::strided(y.data(), DType::kFloat32, Shape{2, 2}, Shape{1, 4}).value();
  ASSERT_TRUE(run(copy, {{view(x, {2, 2})}}, {{target}}).ok());
  EXPECT_THAT(y, ElementsAre(1, 3, -1, -1, 2, 4, -1, -1));
}

template <typename In, typename Out>
std::vector<Out> apply(const std::string& operation, std::vector<In> x, std::vector<In> y) {
  const std::string in(dtype_name(kDType<In>));
  const std::string out(dtype_name(kDType<Out>));
  std::vector<Out> result(x.size());
  const auto size = static_cast<int64_t>(x.size());
  const auto program = parse("tile 1\naxes 1\ninput " + in + " [0]\ninput " + in + " [0]\noutput " + out +
                             " [0]\n%0 = load " + in + " 0\n%1 = load " + in + " 1\n" + operation);
  EXPECT_TRUE(program.ok()) << program.status();
  const std::vector<TensorView> inputs = {view(x, {size}), view(y, {size})};
  if (program.ok()) EXPECT_TRUE(run(*program, inputs, {{view(result, {size})}}).ok());
  return result;
}

struct Unary {
  const char* name;
  double (*exact)(double);
  double ulps;
};

class TileUnary : public testing::TestWithParam<Unary> {};

TEST_P(TileUnary, EqualsDouble) {
  std::vector<float> x = normal(2000, 5);
  const std::string code = "%2 = " + std::string(GetParam().name) + " float32 %0\n%3 = store float32 %2 0\n";
  const auto y = apply<float, float>(code, x, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = GetParam().exact(x[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(y[i])) << x[i];
    } else {
      EXPECT_NEAR(y[i], expected, GetParam().ulps * kUlp * std::fabs(expected)) << x[i];
    }
  }
  const std::vector<double> wide(x.begin(), x.end());
  const std::string double_code = "%2 = " + std::string(GetParam().name) + " float64 %0\n%3 = store float64 %2 0\n";
  const auto z = apply<double, double>(double_code, wide, wide);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = GetParam().exact(wide[i]);
    if (!std::isnan(expected)) EXPECT_NEAR(z[i], expected, 4 * 0x1p-52 * std::fabs(expected)) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, TileUnary,
                         testing::Values(Unary{"neg", [](double v) { return -v; }, 0},
                                         Unary{"abs", [](double v) { return std::fabs(v); }, 0},
                                         Unary{"exp", [](double v) { return std::exp(v); }, 1},
                                         Unary{"log", [](double v) { return std::log(v); }, 1},
                                         Unary{"sqrt", [](double v) { return std::sqrt(v); }, 1},
                                         Unary{"rsqrt", [](double v) { return 1 / std::sqrt(v); }, 2},
                                         Unary{"reciprocal", [](double v) { return 1 / v; }, 1},
                                         Unary{"tanh", [](double v) { return std::tanh(v); }, 2},
                                         Unary{"erf", [](double v) { return std::erf(v); }, 2},
                                         Unary{"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }, 3},
                                         Unary{"sin", [](double v) { return std::sin(v); }, 1},
                                         Unary{"cos", [](double v) { return std::cos(v); }, 1},
                                         Unary{"floor", [](double v) { return std::floor(v); }, 0},
                                         Unary{"ceil", [](double v) { return std::ceil(v); }, 0},
                                         Unary{"round", [](double v) { return std::nearbyint(v); }, 0}),
                         [](const testing::TestParamInfo<Unary>& info) { return info.param.name; });

TEST(TileInterpreter, PropagatesNanThroughMaximum) {
  const auto y = apply<float, float>("%2 = max float32 %0 %1\n%3 = store float32 %2 0\n", {1, kNan, 3, -kInfinity},
                                     {2, 0, kNan, 5});
  EXPECT_EQ(y[0], 2);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 5);
  EXPECT_THAT((apply<int32_t, int32_t>("%2 = min int32 %0 %1\n%3 = store int32 %2 0\n", {1, -5}, {0, 7})),
              ElementsAre(0, -5));
}

TEST(TileInterpreter, WrapsIntegersAround) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_THAT((apply<int32_t, int32_t>("%2 = add int32 %0 %1\n%3 = store int32 %2 0\n", {kMost, 1}, {1, 2})),
              ElementsAre(std::numeric_limits<int32_t>::min(), 3));
  EXPECT_THAT((apply<uint8_t, uint8_t>("%2 = sub uint8 %0 %1\n%3 = store uint8 %2 0\n", {1}, {2})), ElementsAre(255));
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT((apply<int64_t, int64_t>("%2 = mul int64 %0 %1\n%3 = store int64 %2 0\n", {kHuge}, {2})),
              ElementsAre(-2));
}

TEST(TileInterpreter, ComparesAndSelects) {
  const std::string code =
      "%2 = lt float32 %0 %1\n%3 = isnan float32 %0\n%4 = or bool %2 %3\n%5 = not bool %4\n"
      "%6 = select float32 %5 %0 %1\n%7 = store float32 %6 0\n";
  EXPECT_THAT((apply<float, float>(code, {1, 5, kNan, 2}, {2, 3, 7, 2})), ElementsAre(2, 5, 7, 2));
}

TEST(TileInterpreter, CastsWithinTheRangeOfTheInteger) {
  const std::string code = "%2 = cast int32 %0\n%3 = store int32 %2 0\n";
  const std::vector<float> x = {1.9f, -1.9f, 1e20f, -kInfinity, kNan};
  EXPECT_THAT((apply<float, int32_t>(code, x, x)),
              ElementsAre(1, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 0));
}

TEST(TileInterpreter, RoundsOnlyAtCastsAndStores) {
  // 1 + 2^-9 is no bfloat16: rounded after each addition the sum would stay 1.
  const std::string code =
      "%2 = add bfloat16 %0 %1\n%3 = add bfloat16 %2 %1\n%4 = cast float32 %3\n%5 = store float32 %4 0\n";
  EXPECT_THAT((apply<BFloat16, float>(code, {BFloat16(1.0f)}, {BFloat16(0x1p-9f)})), ElementsAre(1.0f + 0x1p-8f));
  const std::string cast =
      "%2 = add bfloat16 %0 %1\n%3 = cast float32 %2\n%4 = cast bfloat16 %3\n%5 = cast float32 %4\n"
      "%6 = store float32 %5 0\n";
  EXPECT_THAT((apply<BFloat16, float>(cast, {BFloat16(1.0f)}, {BFloat16(0x1p-9f)})), ElementsAre(1.0f));
}

std::vector<int64_t> reduced(const std::string& reduction, std::vector<int64_t> x, int64_t rows) {
  const Program program =
      parse("tile 1\naxes 2\ninput int64 [0, 1]\noutput int64 [0]\n%0 = load int64 0\n%1 = " + reduction +
            " int64 %0\n%2 = store int64 %1 0\n")
          .value();
  std::vector<int64_t> y(static_cast<size_t>(rows), 77);
  const auto length = static_cast<int64_t>(x.size()) / rows;
  EXPECT_TRUE(run(program, {{view(x, {rows, length})}}, {{view(y, {rows})}}).ok());
  return y;
}

TEST(TileInterpreter, ReducesIntegers) {
  EXPECT_THAT(reduced("reduce_sum", {1, 2, 3, -4, -5, -6}, 2), ElementsAre(6, -15));
  EXPECT_THAT(reduced("reduce_max", {1, 2, 3, -4, -5, -6}, 2), ElementsAre(3, -4));
  EXPECT_THAT(reduced("reduce_min", {1, 2, 3, -4, -5, -6}, 2), ElementsAre(1, -6));
}

TEST(TileInterpreter, SumsEmptyRowsToZero) { EXPECT_THAT(reduced("reduce_sum", {}, 2), ElementsAre(0, 0)); }

TEST(TileInterpreter, RefusesTheMaximumOfNothing) {
  std::vector<float> none;
  const Status status = run(parse(kSoftmax).value(), {{view(none, {2, 0})}}, {{view(none, {2, 0})}});
  EXPECT_THAT(status.message(), HasSubstr("rows of at least one element for reduce_max"));
  EXPECT_TRUE(run(parse(kSoftmax).value(), {{view(none, {0, 4})}}, {{view(none, {0, 4})}}).ok());
}

TEST(TileInterpreter, NamesTheTensorThatDoesNotFit) {
  const Program program = parse(kRmsNorm).value();
  std::vector<BFloat16> x(6);
  std::vector<float> y(6);
  std::vector<float> weight(3);
  std::vector<float> means(2);
  const auto message = [&](std::vector<TensorView> inputs, std::vector<TensorView> outputs) {
    return run(program, inputs, outputs).message();
  };
  EXPECT_THAT(message({view(x, {2, 3})}, {}), HasSubstr("inputs, outputs: expected 2 and 2, got 1 and 0"));
  EXPECT_THAT(message({view(y, {2, 3}), view(weight, {3})}, {view(y, {2, 3}), view(means, {2})}),
              HasSubstr("inputs[0]: expected a bfloat16 tensor of 2 dims, got float32[2, 3]"));
  EXPECT_THAT(message({view(x, {2, 3}), view(means, {2})}, {view(y, {2, 3}), view(means, {2})}),
              HasSubstr("inputs[1]: expected size 3 or 1 in dim 0, got float32[2]"));
  EXPECT_THAT(message({view(x, {2, 3}), view(weight, {3})}, {view(y, {2, 3}), view(weight, {1})}),
              HasSubstr("outputs[1]: expected size 2 in dim 0, got float32[1]"));
}

}  // namespace
}  // namespace qx::tile
