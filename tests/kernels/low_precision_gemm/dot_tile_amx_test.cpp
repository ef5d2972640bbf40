// The tile-register kernels on emulated instructions, on every machine; on the CPU's own where it has them.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/low_precision_gemm/emulated_tile_unit.h"
#include "kernels/random_values.h"
#include "quincunx/base/cpu_features.h"
#include "quincunx/base/dtype.h"
#include "quincunx/kernels/low_precision_gemm/dot_product.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile_amx-inl.h"
#include "quincunx/kernels/low_precision_gemm/dot_tile_portable.h"
#include "quincunx/kernels/low_precision_gemm/tile_permission.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

void emulated_halves(int64_t rows, int64_t panels, const DotTile& tile) {
  TileRegisters<EmulatedTileUnit>::multiply<true>(rows, panels, tile);
}
void emulated_bytes(int64_t rows, int64_t panels, const DotTile& tile) {
  TileRegisters<EmulatedTileUnit>::multiply<false>(rows, panels, tile);
}
constexpr DotKernel kEmulatedHalves{DotUnits::kBlockedHalves, kShapeAmx, &emulated_halves};
constexpr DotKernel kEmulatedBytes{DotUnits::kBlockedBytes, kShapeAmx, &emulated_bytes};

struct Problem {
  int64_t rows, inner, columns;
};

struct Operands {
  Operands(const Problem& p, WeightFormat format, InputQuantization input)
      : problem(p),
        a(normal_values(p.rows * p.inner, 1)),
        halves(narrowed(a, DType::kBFloat16)),
        weight(normal_values(p.inner * p.columns, 2)),
        storage(static_cast<size_t>(packed_weight_size_bytes(format, p.inner, p.columns).value())),
        output(static_cast<size_t>(p.rows * p.columns)) {
    const bool is_bfloat16 = format == WeightFormat::kBFloat16;
    product.a = is_bfloat16 ? FloatMatrix{DType::kBFloat16, halves.data(), p.inner, 1}
                            : FloatMatrix{DType::kFloat32, a.data(), p.inner, 1};
    product.rows = p.rows;
    product.weight = pack_weight(f32_view(weight, {p.inner, p.columns}), format, storage).value();
    product.output = {DType::kFloat32, output.data(), p.columns, 1};
    product.input = input;
    if (input == InputQuantization::kStatic) {
      product.input_scale = 0.02f;
      product.input_zero_point = 9;
    }
  }

  std::vector<float> multiplied_by(const DotKernel& kernel) {
    output.assign(output.size(), 7.0f);
    multiply_dot(product, kernel);
    return output;
  }

  Problem problem;
  std::vector<float> a;
  std::vector<uint16_t> halves;
  std::vector<float> weight;
  std::vector<uint8_t> storage;
  std::vector<float> output;
  LowPrecisionProduct product;
};

const Problem kProblems[] = {{1, 1, 1},    {1, 70, 130},  {2, 31, 16},  {15, 32, 17}, {16, 33, 48},
                             {17, 64, 33}, {31, 130, 64}, {32, 65, 80}, {33, 2, 20},  {70, 67, 50},
                             {5, 3, 96},   {3, 1601, 20}, {1, 1537, 70}};

TEST(EmulatedTileUnit, SumsEvenAndOddKApartAndRoundsEachStep) {
  const auto pair = [](float even, float odd) {
    return static_cast<uint32_t>(bfloat16_bits_from_float(even)) | static_cast<uint32_t>(bfloat16_bits_from_float(odd))
                                                                       << 16;
  };
  TileConfig config;
  for (const int tile : {0, 4, 6}) config.rows[tile] = tile == 6 ? 2 : 1;
  for (const int tile : {0, 4, 6}) config.row_bytes[tile] = tile == 4 ? 8 : 4;
  EmulatedTileUnit unit;
  unit.configure(config);
  // In order of k: 2^24 + 1 is a tie that rounds down, 1 is lost. Apart: 2^24 + 0, and 1 + 1.
  const uint32_t a[2] = {pair(0x1p24f, 1.0f), pair(0.0f, 1.0f)};
  const uint32_t b[2] = {pair(1.0f, 1.0f), pair(1.0f, 1.0f)};
  float c = 0.0f;
  unit.load<0>(&c, 4);
  unit.load<4>(a, 8);
  unit.load<6>(b, 4);
  unit.multiply_halves<0, 4, 6>();
  unit.store<0>(&c, 4);
  EXPECT_EQ(c, 0x1p24f + 2.0f);

  const uint32_t tiny[2] = {pair(0x1p-130f, 0x1p-100f), pair(0.0f, 0.0f)};
  const uint32_t large[2] = {pair(0x1p100f, 0x1p-40f), pair(1.0f, 1.0f)};
  c = 0x1p-140f;
  unit.load<0>(&c, 4);
  unit.load<4>(tiny, 8);
  unit.load<6>(large, 4);
  unit.multiply_halves<0, 4, 6>();
  unit.store<0>(&c, 4);
  EXPECT_EQ(c, 0.0f) << "a denormal operand, a denormal product and a denormal sum all count as zero";
  unit.release();
}

TEST(DotTileAmx, IntegerProductsHaveTheBitsOfThePlainLoops) {
  for (const Problem& p : kProblems) {
    for (const auto input : {InputQuantization::kDynamic, InputQuantization::kStatic}) {
      Operands operands(p, WeightFormat::kInt8, input);
      const DotKernel plain{DotUnits::kBytes, kShapePortable, &int8_tile_portable};
      const auto expected = operands.multiplied_by(plain);
      EXPECT_EQ(operands.multiplied_by(kEmulatedBytes), expected) << p.rows << "x" << p.inner << "x" << p.columns;
    }
  }
}

TEST(DotTileAmx, IntegerSumsOfSeveralSegmentsHaveTheBitsOfThePlainLoops) {
  Operands operands({18, 2 * 32768 + 5, 3}, WeightFormat::kInt8, InputQuantization::kStatic);
  const auto expected = operands.multiplied_by({DotUnits::kBytes, kShapePortable, &int8_tile_portable});
  EXPECT_EQ(operands.multiplied_by(kEmulatedBytes), expected);
}

TEST(DotTileAmx, HalvesEqualTheReference) {
  for (const Problem& p : kProblems) {
    Operands operands(p, WeightFormat::kBFloat16, InputQuantization::kNone);
    const auto output = operands.multiplied_by(kEmulatedHalves);
    const auto a = widened(operands.halves, DType::kBFloat16);
    std::vector<float> weight(operands.weight.size());
    ASSERT_TRUE(unpack_weight(operands.product.weight, f32_view(weight, {p.inner, p.columns})).ok());
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t j = 0; j < p.columns; ++j) {
        double expected = 0.0, magnitude = 0.0;
        for (int64_t k = 0; k < p.inner; ++k) {
          const double term = double{a[i * p.inner + k]} * weight[k * p.columns + j];
          expected += term;
          magnitude += std::abs(term);
        }
        // Products of bf16 are exact in f32; a sum is rounded once a product and twice a register of 32 k.
        const double bound = static_cast<double>(p.inner + 4) * 0x1p-24 * magnitude;
        ASSERT_NEAR(output[i * p.columns + j], expected, bound) << p.rows << "x" << p.inner << " at " << i << ", " << j;
      }
    }
  }
}

TEST(DotTileAmx, RowsDependNeitherOnTheirNumberNorOnTheThreads) {
  const Problem p{70, 130, 200};
  for (const auto format : {WeightFormat::kBFloat16, WeightFormat::kInt8}) {
    const bool is_bfloat16 = format == WeightFormat::kBFloat16;
    const DotKernel& kernel = is_bfloat16 ? kEmulatedHalves : kEmulatedBytes;
    Operands operands(p, format, is_bfloat16 ? InputQuantization::kNone : InputQuantization::kDynamic);
    set_num_threads(1);
    const auto expected = operands.multiplied_by(kernel);
    set_num_threads(3);
    EXPECT_EQ(operands.multiplied_by(kernel), expected);
    set_num_threads(0);
    for (const int64_t rows : {1, 2, 17, 33}) {
      operands.product.rows = rows;
      const auto some = operands.multiplied_by(kernel);
      EXPECT_EQ(std::memcmp(some.data(), expected.data(), static_cast<size_t>(rows * p.columns) * 4), 0) << rows;
    }
  }
}

TEST(DotTileAmx, InfinitiesAndNaNStayInTheirRow) {
  Operands operands({3, 40, 18}, WeightFormat::kBFloat16, InputQuantization::kNone);
  const auto clean = operands.multiplied_by(kEmulatedHalves);
  operands.halves[1] = 0x7fc0;        // NaN
  operands.halves[40 + 39] = 0x7f80;  // infinity, in the last unit
  const auto output = operands.multiplied_by(kEmulatedHalves);
  for (int64_t j = 0; j < 18; ++j) {
    EXPECT_TRUE(std::isnan(output[j]));
    EXPECT_FALSE(std::isfinite(output[18 + j]));
    EXPECT_EQ(output[36 + j], clean[36 + j]);
  }
}

#if defined(__x86_64__)
TEST(DotTileAmx, TheCpuGivesTheBitsOfTheEmulation) {
  const CpuFeatures& cpu = cpu_features();
  if (!cpu.amx_tile || !cpu.amx_int8 || !cpu.amx_bf16) GTEST_SKIP() << "this CPU has no AMX";
  if (!may_use_tile_registers()) GTEST_SKIP() << "the operating system grants no tile registers";
  for (const Problem& p : kProblems) {
    Operands bytes(p, WeightFormat::kInt8, InputQuantization::kStatic);
    const auto expected_bytes = bytes.multiplied_by(kEmulatedBytes);
    EXPECT_EQ(bytes.multiplied_by({DotUnits::kBlockedBytes, kShapeAmx, &int8_tile_amx}), expected_bytes);
    Operands halves(p, WeightFormat::kBFloat16, InputQuantization::kNone);
    const auto expected_halves = halves.multiplied_by(kEmulatedHalves);
    EXPECT_EQ(halves.multiplied_by({DotUnits::kBlockedHalves, kShapeAmx, &bfloat16_tile_amx}), expected_halves);
  }
}
#endif

TEST(TilePermission, IsAnsweredTheSameWayEachTime) {
  const bool first = may_use_tile_registers();
  EXPECT_EQ(may_use_tile_registers(), first);
}

}  // namespace
}  // namespace qx::kernels
