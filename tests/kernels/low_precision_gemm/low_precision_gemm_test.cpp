#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/base/cpu_features.h"
#include "quincunx/kernels/low_precision_gemm/converted_product.h"
#include "quincunx/kernels/low_precision_gemm/dot_product.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile_portable.h"
#include "quincunx/kernels/low_precision_gemm/low_precision_gemm_reference.h"
#include "quincunx/kernels/low_precision_gemm/quantize_rows.h"
#include "quincunx/kernels/low_precision_gemm/tile_permission.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Mode {
  WeightFormat format;
  InputQuantization input;
};
constexpr Mode kModes[] = {
    {WeightFormat::kBFloat16, InputQuantization::kNone},       {WeightFormat::kFloat16, InputQuantization::kNone},
    {WeightFormat::kInt8, InputQuantization::kNone},           {WeightFormat::kInt8, InputQuantization::kDynamic},
    {WeightFormat::kInt8, InputQuantization::kStatic},         {WeightFormat::kInt8Grouped, InputQuantization::kNone},
    {WeightFormat::kInt8Grouped, InputQuantization::kDynamic}, {WeightFormat::kInt4Grouped, InputQuantization::kNone},
    {WeightFormat::kInt4Grouped, InputQuantization::kDynamic},
};

LowPrecisionOptions options_of(const Mode& mode) {
  LowPrecisionOptions options;
  options.input = mode.input;
  options.input_scale = 0.02f;  // normal values beyond 2.5 are cut
  options.input_zero_point = mode.input == InputQuantization::kStatic ? 9 : 0;
  return options;
}

struct Weight {
  Weight(std::vector<float> values, WeightFormat format, int64_t inner, int64_t columns)
      : storage(static_cast<size_t>(packed_weight_size_bytes(format, inner, columns).value())),
        unpacked(values.size()) {
    packed = pack_weight(f32_view(values, {inner, columns}), format, storage).value();
    EXPECT_TRUE(unpack_weight(packed, f32_view(unpacked, {inner, columns})).ok());
  }
  std::vector<uint8_t> storage;
  std::vector<float> unpacked;  // the values that the products see
  PackedWeight packed;
};

struct Problem {
  int64_t rows, inner, columns;
};

Weight random_weight(const Problem& p, WeightFormat format) {
  return {normal_values(p.inner * p.columns, 2), format, p.inner, p.columns};
}

std::vector<float> product(const Problem& p, std::vector<float> a, const Weight& weight,
                           const LowPrecisionOptions& options) {
  std::vector<float> output(static_cast<size_t>(p.rows * p.columns), 7.0f);
  const Status status =
      low_precision_gemm(f32_view(a, {p.rows, p.inner}), weight.packed, f32_view(output, {p.rows, p.columns}), options);
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

// Sums of f32, in any order, rounded or fused, err by at most inner * 2^-24 * sum |a w|. Integers are exact within a
// group or segment, so that only the scaling and the sums of groups are rounded: fewer roundings than that.
double sum_bound(const std::vector<double>& a, const std::vector<float>& weight, const Problem& p, int64_t i,
                 int64_t j) {
  double magnitude = 0.0;
  for (int64_t k = 0; k < p.inner; ++k) magnitude += std::abs(a[i * p.inner + k] * weight[k * p.columns + j]);
  return static_cast<double>(p.inner + 4) * 0x1p-24 * magnitude;
}

void expect_near_reference(const Problem& p, const Mode& mode, const LowPrecisionOptions& options,
                           const std::vector<float>& a, const Weight& weight, const float* bias, const float* residual,
                           const std::vector<float>& output, double storage_error = 0.0) {
  std::vector<double> expected(output.size());
  low_precision_gemm_reference(a.data(), weight.unpacked.data(), p.rows, p.inner, p.columns, mode.format, options, bias,
                               residual, expected.data());
  const std::vector<double> input = rounded_input_reference(a.data(), p.rows, p.inner, mode.format, options);
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.columns; ++j) {
      const double want = expected[i * p.columns + j];
      // The activations' slopes are below 1.13, and their own error below 2^-21 of the larger of argument and result.
      const double bound = 1.2 * sum_bound(input, weight.unpacked, p, i, j) + 0x1p-21 * (std::abs(want) + 4.0) +
                           storage_error * std::abs(want);
      ASSERT_NEAR(output[i * p.columns + j], want, bound)
          << weight_format_name(mode.format) << ", input " << static_cast<int>(mode.input) << ", " << p.rows << "x"
          << p.inner << "x" << p.columns << " at " << i << ", " << j;
    }
  }
}

TEST(LowPrecisionGemm, EqualsTheReferenceForAllTileShapes) {
  for_each_dispatch_target([] {
    for (const Mode& mode : kModes) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 7, 13, 14, 29}) {
        for (const int64_t columns : {1, 16, 33, 130}) {
          const Problem p{rows, 37, columns};
          const Weight weight = random_weight(p, mode.format);
          const auto a = normal_values(rows * p.inner, 1);
          expect_near_reference(p, mode, options_of(mode), a, weight, nullptr, nullptr,
                                product(p, a, weight, options_of(mode)));
        }
      }
    }
  });
}

TEST(LowPrecisionGemm, EqualsTheReferenceForAllInnerSizes) {
  for_each_dispatch_target([] {
    for (const Mode& mode : kModes) {
      for (const int64_t inner : {1, 2, 3, 4, 5, 8, 31, 32, 33, 64, 767, 769, 1601}) {
        for (const int64_t rows : {1, 8}) {
          const Problem p{rows, inner, 20};
          const Weight weight = random_weight(p, mode.format);
          const auto a = normal_values(p.rows * inner, 3);
          expect_near_reference(p, mode, options_of(mode), a, weight, nullptr, nullptr,
                                product(p, a, weight, options_of(mode)));
        }
      }
    }
  });
}

TEST(LowPrecisionGemm, IntegerSumsBeyondOneSegmentStayExact) {
  // All at the ends of their ranges: 32-bit sums over all of K would overflow.
  const Problem p{2, 2 * 32768 + 5, 3};
  std::vector<float> a(static_cast<size_t>(p.rows * p.inner), 1.0f);
  const Weight weight(std::vector<float>(static_cast<size_t>(p.inner * p.columns), -1.0f), WeightFormat::kInt8, p.inner,
                      p.columns);
  for_each_dispatch_target([&] {
    for (const int32_t zero_point : {0, -128}) {
      LowPrecisionOptions options;
      options.input = zero_point == 0 ? InputQuantization::kDynamic : InputQuantization::kStatic;
      options.input_scale = 1.0f / 255.0f;
      options.input_zero_point = zero_point;
      for (const float value : product(p, a, weight, options)) {
        // Three segments, each rounded by three products and a sum.
        EXPECT_NEAR(value, static_cast<double>(-p.inner), 12 * 0x1p-24 * static_cast<double>(p.inner));
      }
    }
  });
}

TEST(LowPrecisionGemm, AppliesEveryEpilogue) {
  const Problem p{5, 70, 37};
  const auto a = normal_values(p.rows * p.inner, 5);
  auto bias = normal_values(p.columns, 7);
  auto residual = normal_values(p.rows * p.columns, 8);
  const TensorView bias_view = f32_view(bias, {p.columns});
  const TensorView residual_view = f32_view(residual, {p.rows, p.columns});
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      const Weight weight = random_weight(p, mode.format);
      for (const auto activation :
           {Activation::kNone, Activation::kRelu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu}) {
        for (int parts = 0; parts < 4; ++parts) {
          LowPrecisionOptions options = options_of(mode);
          options.activation = activation;
          options.bias = (parts & 1) != 0 ? &bias_view : nullptr;
          options.residual = (parts & 2) != 0 ? &residual_view : nullptr;
          expect_near_reference(p, mode, options, a, weight, (parts & 1) != 0 ? bias.data() : nullptr,
                                (parts & 2) != 0 ? residual.data() : nullptr, product(p, a, weight, options));
        }
      }
    }
  });
}

TEST(LowPrecisionGemm, TakesEveryFloatTypeOnEachSide) {
  const Problem p{6, 45, 35};
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      const Weight weight = random_weight(p, mode.format);
      for (const DType from : {DType::kBFloat16, DType::kFloat16}) {
        for (const DType to : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
          auto a = narrowed(normal_values(p.rows * p.inner, 6), from);
          auto bias = narrowed(normal_values(p.columns, 7), from);
          auto residual = narrowed(normal_values(p.rows * p.columns, 8), from);
          const TensorView bias_view = contiguous_view(bias.data(), from, {p.columns});
          const TensorView residual_view = contiguous_view(residual.data(), from, {p.rows, p.columns});
          LowPrecisionOptions options = options_of(mode);
          options.bias = &bias_view;
          options.residual = &residual_view;
          std::vector<uint32_t> memory(static_cast<size_t>(p.rows * p.columns));
          ASSERT_TRUE(low_precision_gemm(contiguous_view(a.data(), from, {p.rows, p.inner}), weight.packed,
                                         contiguous_view(memory.data(), to, {p.rows, p.columns}), options)
                          .ok());
          std::vector<float> output(memory.size());
          std::vector<uint16_t> halves(memory.size());
          std::memcpy(halves.data(), memory.data(), 2 * halves.size());
          if (to == DType::kFloat32) std::memcpy(output.data(), memory.data(), 4 * output.size());
          if (to != DType::kFloat32) output = widened(halves, to);
          const double storage_error = to == DType::kFloat32 ? 0 : to == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
          expect_near_reference(p, mode, options, widened(a, from), weight, widened(bias, from).data(),
                                widened(residual, from).data(), output, storage_error);
        }
      }
    }
  });
}

TEST(LowPrecisionGemm, StridedOperandsGiveTheSameBits) {
  const Problem p{9, 50, 40};
  auto a = normal_values(p.rows * p.inner, 9);
  std::vector<float> columns_first(a.size());
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t k = 0; k < p.inner; ++k) columns_first[k * p.rows + i] = a[i * p.inner + k];
  }
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      const Weight weight = random_weight(p, mode.format);
      const auto expected = product(p, a, weight, options_of(mode));
      std::vector<float> output(expected.size() * 2);
      const TensorView a_view = strided_view(columns_first.data(), DType::kFloat32, {p.rows, p.inner}, {1, p.rows});
      const TensorView output_view = strided_view(output.data(), DType::kFloat32, {p.rows, p.columns}, {2, 2 * p.rows});
      ASSERT_TRUE(low_precision_gemm(a_view, weight.packed, output_view, options_of(mode)).ok());
      for (int64_t i = 0; i < p.rows; ++i) {
        for (int64_t j = 0; j < p.columns; ++j) {
          ASSERT_EQ(output[2 * (j * p.rows + i)], expected[i * p.columns + j]);
          ASSERT_EQ(output[2 * (j * p.rows + i) + 1], 0.0f);
        }
      }
    }
  });
}

TEST(LowPrecisionGemm, RowsDependNeitherOnTheirNumberNorOnTheThreads) {
  const Problem p{40, 900, 300};
  const auto a = normal_values(p.rows * p.inner, 11);
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      const Weight weight = random_weight(p, mode.format);
      set_num_threads(1);
      const auto expected = product(p, a, weight, options_of(mode));
      for (const int threads : {2, 3}) {
        set_num_threads(threads);
        EXPECT_EQ(product(p, a, weight, options_of(mode)), expected) << threads << " threads";
      }
      for (const int64_t rows : {1, 2, 3, 9}) {
        const auto some =
            product({rows, p.inner, p.columns}, {a.begin(), a.begin() + rows * p.inner}, weight, options_of(mode));
        EXPECT_EQ(std::memcmp(some.data(), expected.data(), some.size() * sizeof(float)), 0)
            << rows << " rows, " << weight_format_name(mode.format);
      }
    }
  });
  set_num_threads(0);
}

TEST(LowPrecisionGemm, UntouchedInputsGiveTheBitsOfGemmOnTheUnpackedWeight) {
  const Problem p{15, 640, 50};
  auto a = normal_values(p.rows * p.inner, 12);
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      if (mode.input != InputQuantization::kNone) continue;
      Weight weight = random_weight(p, mode.format);
      std::vector<float> expected(static_cast<size_t>(p.rows * p.columns));
      ASSERT_TRUE(gemm(f32_view(a, {p.rows, p.inner}), f32_view(weight.unpacked, {p.inner, p.columns}),
                       f32_view(expected, {p.rows, p.columns}))
                      .ok());
      EXPECT_EQ(product(p, a, weight, options_of(mode)), expected) << weight_format_name(mode.format);
    }
  });
}

TEST(LowPrecisionGemm, NaNAndInfinityInOneRowStayInIt) {
  const Problem p{3, 40, 18};
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      const Weight weight(std::vector<float>(static_cast<size_t>(p.inner * p.columns), 1.0f), mode.format, p.inner,
                          p.columns);
      std::vector<float> a(static_cast<size_t>(p.rows * p.inner), 0.0f);
      a[1] = kNaN;
      a[p.inner + 35] = kInfinity;
      a[2 * p.inner] = 0.5f;
      const auto output = product(p, a, weight, options_of(mode));
      for (int64_t j = 0; j < p.columns; ++j) {
        EXPECT_TRUE(std::isnan(output[j]));
        const float second = output[p.columns + j];
        if (mode.input == InputQuantization::kNone) {
          EXPECT_EQ(second, kInfinity);
        }
        if (mode.input == InputQuantization::kDynamic) {
          EXPECT_TRUE(std::isnan(second));
        }
        // Saturates at level 127: (127 - 9) * 0.02.
        if (mode.input == InputQuantization::kStatic) {
          EXPECT_NEAR(second, 2.36f, 1e-6f);
        }
        // Weights of 1 may become 1 + 2^-10: scales in f16 are rounded up.
        EXPECT_NEAR(output[2 * p.columns + j], 0.5f, 0x1p-11f);
      }
    }
  });
}

TEST(LowPrecisionGemm, KeepsDenormalActivations) {
  const Problem p{2, 33, 17};
  for_each_dispatch_target([&] {
    for (const Mode& mode : kModes) {
      if (mode.input == InputQuantization::kStatic) continue;
      const Weight weight(std::vector<float>(static_cast<size_t>(p.inner * p.columns), 1.0f), mode.format, p.inner,
                          p.columns);
      std::vector<float> a(static_cast<size_t>(p.rows * p.inner), 0.0f);
      a[0] = 1e-40f;
      a[p.inner + 32] = -1e-40f;
      const auto output = product(p, a, weight, options_of(mode));
      // A scale of 1e-40 / 127 has but 9 bits left: 2^-149 * 127 / 2 at most is lost.
      // Weights of 1 may become 1 + 2^-10: scales in f16 are rounded up.
      const double bound = 64 * 0x1p-149 + 1e-40 * 0x1p-10;
      EXPECT_NEAR(output[0], 1e-40f, bound);
      EXPECT_NEAR(output[2 * p.columns - 1], -1e-40f, bound);
    }
  });
}

TEST(LowPrecisionGemm, ABFloat16ProductOfTwoRoundsAtTheEndAlone) {
  // 1 + 2^-8 is no bf16: products must be summed in f32, natively or not.
  const Problem p{1, 2, 1};
  const Weight weight({1.0f, 0x1p-9f}, WeightFormat::kBFloat16, p.inner, p.columns);
  auto a = narrowed({1.0f, 1.0f}, DType::kBFloat16);
  for_each_dispatch_target([&] {
    std::vector<float> output(1);
    ASSERT_TRUE(
        low_precision_gemm(contiguous_view(a.data(), DType::kBFloat16, {1, 2}), weight.packed, f32_view(output, {1, 1}))
            .ok());
    EXPECT_EQ(output[0], 1.0f + 0x1p-9f);
  });
}

TEST(LowPrecisionGemm, EmptySizesAreFine) {
  for_each_dispatch_target([] {
    for (const Mode& mode : kModes) {
      std::vector<float> bias{1.0f, -2.0f, 3.0f};
      const TensorView bias_view = f32_view(bias, {3});
      LowPrecisionOptions options = options_of(mode);
      const Weight no_inner({}, mode.format, 0, 3);
      options.bias = &bias_view;
      options.activation = Activation::kRelu;
      EXPECT_EQ(product({2, 0, 3}, {}, no_inner, options), (std::vector<float>{1.0f, 0.0f, 3.0f, 1.0f, 0.0f, 3.0f}));
      std::vector<float> rows(20 * 3);
      const TensorView no_columns = strided_view(nullptr, DType::kBFloat16, {20, 0}, {1, 20});
      ASSERT_TRUE(low_precision_gemm(no_columns, no_inner.packed, f32_view(rows, {20, 3}), options).ok());
      for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], std::max(bias[i % 3], 0.0f));
      options.bias = nullptr;
      EXPECT_TRUE(product({0, 4, 3}, {}, random_weight({0, 4, 3}, mode.format), options).empty());
      EXPECT_TRUE(product({2, 4, 0}, {1, 2, 3, 4, 5, 6, 7, 8}, Weight({}, mode.format, 4, 0), options).empty());
    }
  });
}

TEST(LowPrecisionGemm, ChoosesInstructionsByTheCpu) {
#if defined(__x86_64__)
  for_each_dispatch_target([] {
    const int64_t targets = hwy::SupportedTargets();
    const bool has_vnni = (targets & HWY_AVX3) != 0 && cpu_features().avx512vnni;
    const bool has_avx2 = (targets & (HWY_AVX2 | HWY_AVX3)) != 0;
    const bool may_use_tiles = (targets & HWY_AVX3) != 0 && cpu_features().amx_tile && may_use_tile_registers();
    const bool has_tiles = may_use_tiles && cpu_features().amx_int8;
    EXPECT_STREQ(integer_dot_name(), has_tiles ? "amx" : has_vnni ? "avx512vnni" : has_avx2 ? "avx2" : "portable");
    EXPECT_EQ(has_bfloat16_dot(),
              ((targets & HWY_AVX3) != 0 && cpu_features().avx512bf16) || (may_use_tiles && cpu_features().amx_bf16));
  });
#else
  EXPECT_STREQ(integer_dot_name(), "portable");
  EXPECT_FALSE(has_bfloat16_dot());
#endif
}

}  // namespace
}  // namespace qx::kernels
