#include "quincunx/kernels/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/cross_entropy/cross_entropy_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TensorView index_view(std::vector<int64_t>& values) {
  return contiguous_view(values.data(), DType::kInt64, {static_cast<int64_t>(values.size())});
}

std::vector<int64_t> some_targets(int64_t rows, int64_t classes) {
  std::vector<int64_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back((r * 7919 + 3) % classes);
  return targets;
}

std::vector<double> row_of(const std::vector<float>& x, size_t row, size_t classes) {
  return {x.begin() + static_cast<int64_t>(row * classes), x.begin() + static_cast<int64_t>((row + 1) * classes)};
}

// Each difference to the maximum is rounded once, exp adds an ulp, a block's sum n/16 roundings (at most 2048/16) and
// log passes relative errors on as absolute ones; the result is rounded at its own size.
double loss_tolerance(double loss) { return (160 + 4 * std::abs(loss)) * 0x1p-24; }

struct Case {
  int64_t classes;
  double smoothing;
};
constexpr Case kCases[] = {{1, 0}, {2, 0.1}, {7, 0}, {16, 0.5}, {33, 0}, {1000, 0.1}, {2048, 0}, {5000, 0.1}};

// The first logits give what is subtracted, unless later ones are much larger.
TEST(CrossEntropy, FindsLaterMaxima) {
  for_each_dispatch_target([] {
    for (const float later : {5.0f, 16.0f, 30.0f, 95.0f, 1000.0f, -1000.0f}) {
      for (const size_t from : {size_t{0}, size_t{300}, size_t{2100}}) {
        std::vector<float> x = normal_values(5000, 3), loss(1), lse(1);
        for (size_t i = from; i < from + 300; ++i) x[i] += later;
        std::vector<int64_t> targets = {17};
        const CrossEntropyOptions options{.reduction = LossReduction::kNone};
        ASSERT_TRUE(
            cross_entropy(f32_view(x, {1, 5000}), index_view(targets), options, f32_view(loss, {1}), f32_view(lse, {1}))
                .ok());
        const double expected = cross_entropy_reference(row_of(x, 0, 5000), 17, 0);
        ASSERT_NEAR(loss[0], expected, loss_tolerance(std::abs(expected) + 2 * std::abs(later) + 10)) << later;
      }
    }
  });
}

// A row whose target has a loss of about `wanted` at any offset of all logits.
std::vector<float> dominated_row(size_t classes, size_t target, double wanted, float offset, DType dtype) {
  std::vector<float> x = normal_values(static_cast<int64_t>(classes), 11, offset);
  double others = 0;
  for (size_t i = 0; i < classes; ++i) others += i == target ? 0 : std::exp(static_cast<double>(x[i]));
  x[target] = static_cast<float>(std::log(others / wanted));
  return dtype == DType::kFloat32 ? x : widened(narrowed(x, dtype), dtype);
}

// The bound of cross_entropy.h, of a row {x} on every instruction set.
void expect_relative_loss(const std::vector<float>& x, size_t target, DType dtype) {
  double sum = 0, furthest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double below = static_cast<double>(x[target]) - x[i];
    if (i != target) sum += std::exp(-below);
    furthest = std::max(furthest, std::abs(below));
  }
  const double expected = std::log1p(sum), tolerance = (2.25 * furthest + 140) * 0x1p-24 * expected;
  std::vector<float> wide = x, loss(1), lse(1);
  std::vector<uint16_t> narrow = narrowed(x, dtype);
  void* data = dtype == DType::kFloat32 ? static_cast<void*>(wide.data()) : narrow.data();
  std::vector<int64_t> targets = {static_cast<int64_t>(target)};
  const TensorView logits = contiguous_view(data, dtype, {1, static_cast<int64_t>(x.size())});
  const CrossEntropyOptions options{.reduction = LossReduction::kNone};
  ASSERT_TRUE(cross_entropy(logits, index_view(targets), options, f32_view(loss, {1}), f32_view(lse, {1})).ok());
  ASSERT_NEAR(loss[0], expected, tolerance) << x.size() << " classes, target " << target;
}

// A probability near 1 leaves a loss that the rounding of log_sum_exp or of a sum with a term of 1 in it would hide.
TEST(CrossEntropy, IsRelativelyExactNearZeroWhereverTheTargetStands) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const size_t classes : {size_t{1000}, size_t{32000}}) {
        for (const size_t target : {size_t{0}, size_t{255}, size_t{256}, size_t{300}, classes - 1}) {
          for (const double wanted : {1e-1, 1e-5, 1e-6, 1e-7, 1e-8}) {
            for (const float offset : {0.0f, -40.0f}) {
              expect_relative_loss(dominated_row(classes, target, wanted, offset, dtype), target, dtype);
            }
          }
        }
      }
    }
  });
}

TEST(CrossEntropy, MatchesTheReferenceForEachReduction) {
  for_each_dispatch_target([] {
    for (const Case& c : kCases) {
      std::vector<float> x = normal_values(5 * c.classes, 1, 1, 3), loss(5), lse(5), total(1);
      std::vector<int64_t> targets = some_targets(5, c.classes);
      targets[2] = -100;
      CrossEntropyOptions options{.label_smoothing = c.smoothing, .reduction = LossReduction::kNone};
      const TensorView logits = f32_view(x, {5, c.classes});
      ASSERT_TRUE(cross_entropy(logits, index_view(targets), options, f32_view(loss, {5}), f32_view(lse, {5})).ok());
      double sum = 0;
      for (size_t r = 0; r < 5; ++r) {
        const auto row = row_of(x, r, static_cast<size_t>(c.classes));
        const double expected = targets[r] < 0 ? 0 : cross_entropy_reference(row, targets[r], c.smoothing);
        ASSERT_NEAR(loss[r], expected, loss_tolerance(expected + 10)) << c.classes;
        sum += expected;
      }
      options.reduction = LossReduction::kSum;
      ASSERT_TRUE(cross_entropy(logits, index_view(targets), options, f32_view(total, {}), f32_view(lse, {5})).ok());
      EXPECT_NEAR(total[0], sum, 5 * loss_tolerance(sum + 10));
      options.reduction = LossReduction::kMean;
      ASSERT_TRUE(cross_entropy(logits, index_view(targets), options, f32_view(total, {}), f32_view(lse, {5})).ok());
      EXPECT_NEAR(total[0], sum / 4, loss_tolerance(sum + 10));
    }
  });
}

TEST(CrossEntropy, GivesTheGradientOfEachReduction) {
  for_each_dispatch_target([] {
    for (const Case& c : kCases) {
      for (const auto reduction : {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum}) {
        std::vector<float> x = normal_values(4 * c.classes, 2), lse(4), loss(4), gradient(x.size() + 1, 99);
        std::vector<float> grad_loss = {1.5f, -2, 0.5f, 3};
        std::vector<int64_t> targets = some_targets(4, c.classes);
        targets[1] = 2'000'000;
        const CrossEntropyOptions options{
            .ignore_index = 2'000'000, .label_smoothing = c.smoothing, .reduction = reduction};
        const bool none = reduction == LossReduction::kNone;
        const TensorView logits = f32_view(x, {4, c.classes});
        const auto scalar_or_rows = [&](std::vector<float>& v) { return none ? f32_view(v, {4}) : f32_view(v, {}); };
        ASSERT_TRUE(cross_entropy(logits, index_view(targets), options, scalar_or_rows(loss), f32_view(lse, {4})).ok());
        ASSERT_TRUE(cross_entropy_backward(logits, index_view(targets), f32_view(lse, {4}), scalar_or_rows(grad_loss),
                                           options, f32_view(gradient, {4, c.classes}))
                        .ok());
        const auto classes = static_cast<size_t>(c.classes);
        for (size_t r = 0; r < 4; ++r) {
          std::vector<double> expected(classes);
          if (r != 1) cross_entropy_gradient_reference(row_of(x, r, classes), targets[r], c.smoothing, expected);
          const double scale = none ? grad_loss[r] : reduction == LossReduction::kSum ? 1.5 : 0.5;
          for (size_t i = 0; i < classes; ++i) {
            ASSERT_NEAR(gradient[r * classes + i], scale * expected[i], 200 * 0x1p-24 * std::abs(scale)) << i;
          }
        }
        ASSERT_EQ(gradient.back(), 99);
      }
    }
  });
}

TEST(CrossEntropy, ReadsHalfPrecisionStridesAndInt32TargetsAndWritesGradientsInPlace) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> x = narrowed(normal_values(3 * 50, 3), dtype);
      const std::vector<float> wide = widened(x, dtype);
      std::vector<int32_t> targets = {4, 9, 9, 9, 49};
      std::vector<float> loss(3), lse(3), grad_loss = {1, 1, 1};
      // Columns of a [50, 3] matrix; every second target.
      const TensorView logits = strided_view(x.data(), dtype, {3, 50}, {1, 3});
      const TensorView picked = strided_view(targets.data(), DType::kInt32, {3}, {2});
      const CrossEntropyOptions options{.label_smoothing = 0.2, .reduction = LossReduction::kNone};
      ASSERT_TRUE(cross_entropy(logits, picked, options, f32_view(loss, {3}), f32_view(lse, {3})).ok());
      ASSERT_TRUE(
          cross_entropy_backward(logits, picked, f32_view(lse, {3}), f32_view(grad_loss, {3}), options, logits).ok());
      const std::vector<float> gradient = widened(x, dtype);
      const double half_unit = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
      for (size_t r = 0; r < 3; ++r) {
        std::vector<double> row, expected(50);
        for (size_t i = 0; i < 50; ++i) row.push_back(wide[i * 3 + r]);
        const int64_t target = targets[2 * r];
        EXPECT_NEAR(loss[r], cross_entropy_reference(row, target, 0.2), loss_tolerance(10));
        cross_entropy_gradient_reference(row, target, 0.2, expected);
        for (size_t i = 0; i < 50; ++i) {
          ASSERT_NEAR(gradient[i * 3 + r], expected[i], half_unit * std::abs(expected[i]) + 0x1p-20);
        }
      }
    }
  });
}

TEST(CrossEntropy, IsSafeForLargeLogitsAndDefinesInfinitiesAndNaN) {
  for_each_dispatch_target([] {
    std::vector<float> x(8 * 3000, -kInfinity), loss(8), lse(8);
    x[10] = 1e4f, x[2900] = 1e4f;  // two blocks, the first after nothing but -inf
    x[3000 + 2500] = 5;
    for (size_t i = 6000; i < 9000; ++i) x[i] = 0;
    x[6001] = kInfinity;
    x[9000 + 2999] = std::nanf("");
    x[12000 + 5] = 1;
    x[15000 + 7] = 1, x[15000 + 2000] = kInfinity;
    x[18000 + 2999] = kInfinity;
    std::vector<int64_t> targets = {2900, 2500, 1, 0, 300, 7, 2999, 2999};
    const CrossEntropyOptions options{.reduction = LossReduction::kNone};
    ASSERT_TRUE(
        cross_entropy(f32_view(x, {8, 3000}), index_view(targets), options, f32_view(loss, {8}), f32_view(lse, {8}))
            .ok());
    EXPECT_NEAR(loss[0], std::log(2.0), 1e-3);  // 1e4 has steps of 2^-10
    EXPECT_EQ(loss[1], 0);
    EXPECT_TRUE(std::isnan(loss[2]));
    EXPECT_TRUE(std::isnan(loss[3]));
    EXPECT_EQ(loss[4], kInfinity) << "a target of probability 0";
    EXPECT_EQ(lse[4], 1);
    EXPECT_TRUE(std::isnan(loss[5]) && std::isnan(loss[6])) << "infinite logits";
    EXPECT_TRUE(std::isnan(loss[7])) << "nothing but -inf";
    EXPECT_EQ(lse[7], -kInfinity);
  });
}

TEST(CrossEntropy, TheMeanOverNoRowIsNaNAndNoRowsAreFine) {
  std::vector<float> x(6), loss(1), lse(2);
  std::vector<int64_t> ignored = {-100, -100}, none;
  ASSERT_TRUE(cross_entropy(f32_view(x, {2, 3}), index_view(ignored), {}, f32_view(loss, {}), f32_view(lse, {2})).ok());
  EXPECT_TRUE(std::isnan(loss[0]));
  ASSERT_TRUE(cross_entropy(f32_view(x, {0, 3}), index_view(none), {.reduction = LossReduction::kSum},
                            f32_view(loss, {}), f32_view(lse, {0}))
                  .ok());
  EXPECT_EQ(loss[0], 0);
}

TEST(CrossEntropy, GivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> x = normal_values(100 * 700, 4), one(1), many(1), lse(100), grad_loss = {1};
  std::vector<float> first(x.size()), second(x.size());
  std::vector<int64_t> targets = some_targets(100, 700);
  const auto run = [&](int threads, std::vector<float>& loss, std::vector<float>& gradient) {
    set_num_threads(threads);
    const TensorView logits = f32_view(x, {100, 700});
    ASSERT_TRUE(cross_entropy(logits, index_view(targets), {}, f32_view(loss, {}), f32_view(lse, {100})).ok());
    ASSERT_TRUE(cross_entropy_backward(logits, index_view(targets), f32_view(lse, {100}), f32_view(grad_loss, {}), {},
                                       f32_view(gradient, {100, 700}))
                    .ok());
  };
  run(1, one, first);
  run(3, many, second);
  set_num_threads(0);
  EXPECT_EQ(one[0], many[0]);
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
}

TEST(CrossEntropy, RejectsBadInput) {
  std::vector<float> x(6), loss(2), lse(2);
  std::vector<int64_t> targets = {0, 3}, right = {0, 1};
  const TensorView logits = f32_view(x, {2, 3}), scalar = f32_view(loss, {}), sums = f32_view(lse, {2});
  EXPECT_EQ(cross_entropy(logits, index_view(targets), {}, scalar, sums).message(),
            "targets[1]: expected 0 to 2 or the ignored -100, got 3");
  EXPECT_EQ(cross_entropy(logits, f32_view(x, {2}), {}, scalar, sums).message(),
            "targets: expected int64 or int32, got float32[2]");
  EXPECT_EQ(cross_entropy(logits, index_view(right), {.label_smoothing = 1.5}, scalar, sums).message(),
            "label_smoothing: expected 0 to 1, got 1.500000");
  EXPECT_EQ(cross_entropy(logits, index_view(right), {}, f32_view(loss, {2}), sums).message(),
            "loss: expected 0 dimensions, got float32[2]");
  EXPECT_EQ(cross_entropy(logits, index_view(right), {}, scalar, f32_view(lse, {1})).message(),
            "log_sum_exp: expected one dimension of 2 elements (one a row of logits), got float32[1]");
  EXPECT_EQ(cross_entropy(f32_view(x, {2, 0}), index_view(right), {}, scalar, sums).message(),
            "logits: expected at least one class, got float32[2, 0]");
  EXPECT_EQ(cross_entropy_backward(logits, index_view(right), sums, scalar, {}, f32_view(x, {3, 2})).message(),
            "grad_logits: expected the shape of logits float32[2, 3], got float32[3, 2]");
  EXPECT_EQ(loss_reduction_from_name("median").status().message(),
            "reduction: expected none, mean or sum, got 'median'");
  EXPECT_EQ(loss_reduction_from_name("sum").value(), LossReduction::kSum);
}

}  // namespace
}  // namespace qx::kernels
