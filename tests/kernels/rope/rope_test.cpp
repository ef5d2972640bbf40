#include "quincunx/kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/rope/rope_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

struct Tables {
  std::vector<float> cos, sin;
  int64_t positions, pairs;
  TensorView cos_view() { return f32_view(cos, {positions, pairs}); }
  TensorView sin_view() { return f32_view(sin, {positions, pairs}); }
};

Tables make_tables(int64_t positions, int64_t pairs) {
  Tables tables{std::vector<float>(static_cast<size_t>(positions * pairs)), {}, positions, pairs};
  tables.sin = tables.cos;
  EXPECT_TRUE(fill_rope_tables({}, tables.cos_view(), tables.sin_view()).ok());
  return tables;
}

// Two products and a sum, each rounded once in f32: at most 2 units of |a| + |b|; plus a final narrowing.
void expect_head(RopeForm form, const float* x, const float* actual, int64_t head_dim, const Tables& tables,
                 int64_t position, double narrowing = 0) {
  const auto row = [&](const std::vector<float>& table) {
    const float* start = table.data() + position * tables.pairs;
    return std::vector<double>(start, start + tables.pairs);
  };
  const std::vector<double> input(x, x + head_dim);
  std::vector<double> expected(input.size());
  rope_reference(form, input, row(tables.cos), row(tables.sin), expected);
  double largest = 0;
  for (const double value : input) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 4 * 0x1p-24 * largest + narrowing * std::abs(expected[i])) << "element " << i;
  }
}

class Rope : public testing::TestWithParam<RopeForm> {};
INSTANTIATE_TEST_SUITE_P(Forms, Rope, testing::Values(RopeForm::kHalfSplit, RopeForm::kInterleaved),
                         [](const auto& info) {
                           return std::string(info.param == RopeForm::kHalfSplit ? "HalfSplit" : "Interleaved");
                         });

TEST_P(Rope, RotatesBothLayoutsAtAnyHeadSizeAndCopiesTheRest) {
  constexpr int64_t kBatch = 2, kPositions = 5, kHeads = 3;
  for_each_dispatch_target([&] {
    for (const int64_t head_dim : {1, 2, 4, 6, 15, 16, 17, 32, 40, 64, 80, 130}) {
      for (const int64_t pairs : {head_dim / 2, head_dim / 4}) {
        Tables tables = make_tables(kPositions, pairs);
        std::vector<float> x = normal_values(kBatch * kPositions * kHeads * head_dim, 1);
        for (const int sequence_dim : {1, 2}) {
          const std::vector<int64_t> shape = sequence_dim == 1
                                                 ? std::vector<int64_t>{kBatch, kPositions, kHeads, head_dim}
                                                 : std::vector<int64_t>{kBatch, kHeads, kPositions, head_dim};
          std::vector<float> y(x.size() + 1, 99);
          const RopeOptions options{GetParam(), sequence_dim};
          const Status status =
              apply_rope(f32_view(x, shape), tables.cos_view(), tables.sin_view(), options, f32_view(y, shape));
          ASSERT_TRUE(status.ok()) << status;
          for (int64_t row = 0; row < kBatch * kPositions * kHeads; ++row) {
            const int64_t position = sequence_dim == 1 ? row / kHeads % kPositions : row % kPositions;
            expect_head(GetParam(), &x[static_cast<size_t>(row * head_dim)], &y[static_cast<size_t>(row * head_dim)],
                        head_dim, tables, position);
          }
          ASSERT_EQ(y.back(), 99);
        }
      }
    }
  });
}

TEST_P(Rope, WorksInPlaceOnStridedViews) {
  // q inside a packed [B, S, 3, H, D] projection; and a view whose head elements are two apart.
  constexpr int64_t kPositions = 4, kHeads = 2, kHeadDim = 24;
  for_each_dispatch_target([&] {
    Tables tables = make_tables(kPositions, kHeadDim / 2);
    const std::vector<float> original = normal_values(kPositions * 3 * kHeads * kHeadDim * 2, 2);
    for (const int64_t step : {1, 2}) {
      std::vector<float> x = original;
      const TensorView q = strided_view(x.data(), DType::kFloat32, {1, kPositions, kHeads, kHeadDim},
                                        {0, 3 * kHeads * kHeadDim * step, kHeadDim * step, step});
      ASSERT_TRUE(apply_rope(q, tables.cos_view(), tables.sin_view(), {GetParam(), 1}, q).ok());
      for (int64_t row = 0; row < kPositions * 3 * kHeads; ++row) {
        std::vector<float> before, after;
        for (int64_t i = 0; i < kHeadDim; ++i) {
          const auto index = static_cast<size_t>((row * kHeadDim + i) * step);
          before.push_back(original[index]);
          after.push_back(x[index]);
        }
        if (row % (3 * kHeads) < kHeads) {
          expect_head(GetParam(), before.data(), after.data(), kHeadDim, tables, row / (3 * kHeads));
        } else {
          EXPECT_EQ(before, after) << "k and v must not change";
        }
      }
    }
  });
}

TEST_P(Rope, ComputesHalfPrecisionInF32) {
  for_each_dispatch_target([&] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      Tables tables = make_tables(3, 10);
      std::vector<uint16_t> x = narrowed(normal_values(3 * 22, 3), dtype), y(x.size());
      ASSERT_TRUE(apply_rope(contiguous_view(x.data(), dtype, {1, 3, 1, 22}), tables.cos_view(), tables.sin_view(),
                             {GetParam(), 1}, contiguous_view(y.data(), dtype, {1, 3, 1, 22}))
                      .ok());
      const std::vector<float> wide = widened(x, dtype), result = widened(y, dtype);
      for (int64_t position = 0; position < 3; ++position) {
        expect_head(GetParam(), wide.data() + position * 22, result.data() + position * 22, 22, tables, position,
                    dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-10);
      }
    }
  });
}

TEST_P(Rope, KeepsNaNInItsPairAndAcceptsStridedTables) {
  for_each_dispatch_target([&] {
    Tables tables = make_tables(3, 4);
    std::vector<float> wide_cos(24), wide_sin(24);
    for (size_t i = 0; i < 12; ++i) wide_cos[2 * i] = tables.cos[i], wide_sin[2 * i] = tables.sin[i];
    std::vector<float> x = normal_values(24, 4), y(24);
    x[8] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(apply_rope(f32_view(x, {1, 3, 1, 8}), strided_view(wide_cos.data(), DType::kFloat32, {3, 4}, {8, 2}),
                           strided_view(wide_sin.data(), DType::kFloat32, {3, 4}, {8, 2}), {GetParam(), 1},
                           f32_view(y, {1, 3, 1, 8}))
                    .ok());
    const size_t partner = GetParam() == RopeForm::kHalfSplit ? 12 : 9;
    for (size_t i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(y[i]), i == 8 || i == partner) << i;
    expect_head(GetParam(), &x[16], &y[16], 8, tables, 2);
  });
}

TEST_P(Rope, GivesTheSameBitsForAnyNumberOfThreads) {
  Tables tables = make_tables(50, 32);
  std::vector<float> x = normal_values(2 * 50 * 9 * 64, 5), one(x.size()), many(x.size());
  const std::vector<int64_t> shape = {2, 50, 9, 64};
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    ASSERT_TRUE(apply_rope(f32_view(x, shape), tables.cos_view(), tables.sin_view(), {GetParam(), 1},
                           f32_view(threads == 1 ? one : many, shape))
                    .ok());
  }
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
}

TEST(RopeTables, AreTheRoundedAnglesEvenAtLargePositions) {
  std::vector<float> cos(2 * 3), sin(2 * 3);
  const RopeTableOptions options{.theta = 5e5, .first_position = 1'000'000, .position_scale = 0.5};
  ASSERT_TRUE(fill_rope_tables(options, f32_view(cos, {2, 3}), f32_view(sin, {2, 3})).ok());
  for (size_t s = 0; s < 2; ++s) {
    for (size_t i = 0; i < 3; ++i) {
      // Independent form of the frequency; f64 keeps an angle of 5e5 to 1e-10.
      const double power = std::exp(static_cast<double>(i) / 3 * std::log(5e5));
      const double angle = (500000 + 0.5 * static_cast<double>(s)) / power;
      EXPECT_NEAR(cos[s * 3 + i], std::cos(angle), 0x1p-25 + 1e-9);
      EXPECT_NEAR(sin[s * 3 + i], std::sin(angle), 0x1p-25 + 1e-9);
    }
  }
}

TEST(RopeTables, RejectBadInput) {
  std::vector<float> cos(6), sin(6);
  const TensorView c = f32_view(cos, {2, 3}), s = f32_view(sin, {2, 3});
  EXPECT_EQ(fill_rope_tables({.theta = 0}, c, s).message(), "theta: expected a positive finite number, got 0.000000");
  EXPECT_EQ(fill_rope_tables({.position_scale = HUGE_VAL}, c, s).message(),
            "position_scale: expected a finite number, got inf");
  EXPECT_EQ(fill_rope_tables({}, c, f32_view(sin, {3, 2})).message(),
            "sin: expected the shape of cos float32[2, 3], got float32[3, 2]");
  EXPECT_EQ(fill_rope_tables({}, c, c).message(), "sin: is the same memory as cos");
}

TEST(ApplyRope, RejectsBadInput) {
  std::vector<float> x(48), y(48), table(64);
  const TensorView in = f32_view(x, {1, 2, 3, 8}), out = f32_view(y, {1, 2, 3, 8}), cos = f32_view(table, {2, 4});
  const auto message = [&](const TensorView& a, const TensorView& c, const TensorView& s, const RopeOptions& options) {
    return apply_rope(a, c, s, options, out).message();
  };
  EXPECT_EQ(message(f32_view(x, {6, 8}), cos, cos, {}), "input: expected 4 dimensions, got float32[6, 8]");
  EXPECT_EQ(message(in, f32_view(table, {3, 4}), f32_view(table, {3, 4}), {}),
            "cos: expected one row for each of the 2 positions of input float32[1, 2, 3, 8], got float32[3, 4]");
  EXPECT_EQ(message(in, f32_view(table, {2, 5}), f32_view(table, {2, 5}), {}),
            "cos: expected at most 4 columns, half of the head size of input float32[1, 2, 3, 8], got float32[2, 5]");
  EXPECT_EQ(message(in, cos, f32_view(table, {2, 3}), {}),
            "sin: expected the shape of cos float32[2, 4], got float32[2, 3]");
  EXPECT_EQ(message(in, cos, cos, {RopeForm::kHalfSplit, 3}), "sequence_dim: expected 1 or 2, got 3");
  EXPECT_EQ(message(in, cos, cos, {static_cast<RopeForm>(7), 1}), "form: expected a RopeForm, got 7");
  EXPECT_EQ(apply_rope(in, cos, cos, {}, f32_view(y, {1, 3, 2, 8})).message(),
            "output: expected the shape of input float32[1, 2, 3, 8], got float32[1, 3, 2, 8]");
}

}  // namespace
}  // namespace qx::kernels
