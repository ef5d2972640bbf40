#include "quincunx/compiler/codegen/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/codegen/program_builder.h"
#include "quincunx/compiler/codegen/loop_kernel.h"

namespace qx::compiler {
namespace {

// Every kStride-th of the 2^32 floats: 40,000 of them, of all magnitudes, NaNs and denormals.
constexpr uint32_t kStride = 107377;
constexpr int64_t kCount = 40000;

double unitAt(double value) {
  const float rounded = std::fabs(static_cast<float>(value));
  if (!std::isfinite(rounded)) return 0;
  return std::nextafter(rounded, std::numeric_limits<float>::infinity()) - static_cast<double>(rounded);
}

struct Case {
  Opcode opcode;
  double (*exact)(double);
  double units;     // see vector_math.h
  double absolute;  // where results are tiny
};

class VectorMathTest : public ::testing::TestWithParam<Case> {};

TEST_P(VectorMathTest, StaysWithinItsUnits) {
  const auto [opcode, exact, units, absolute] = GetParam();
  ProgramBuilder b({{symbol(0), false}});
  b.output(b.apply(opcode, b.input(DType::kFloat32, {0})), {0});
  const auto kernel = createLoopKernel(b.build(), {});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const OwnedTensor in(DType::kFloat32, {kCount}), out(DType::kFloat32, {kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    const uint32_t bits = static_cast<uint32_t>(i) * kStride;
    std::memcpy(in.view().data_as<float>() + i, &bits, sizeof(bits));
  }
  ASSERT_TRUE((*kernel)->run(std::vector{in.view()}, std::vector{out.view()}, std::vector<int64_t>{kCount}).ok());
  for (int64_t i = 0; i < kCount; ++i) {
    const double x = in.get(i);
    const double right = exact(x);
    const double got = out.get(i);
    if (std::isnan(right)) {
      ASSERT_TRUE(std::isnan(got)) << x;
    } else if (!std::isfinite(static_cast<float>(right))) {
      ASSERT_EQ(got, static_cast<float>(right)) << x;
    } else {
      // Half a unit of the right value's own rounding comes on top.
      ASSERT_NEAR(got, right, (units + 0.5) * unitAt(right) + absolute) << "at " << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, VectorMathTest,
                         ::testing::Values(Case{Opcode::kExp, [](double x) { return std::exp(x); }, 1, 0},
                                           Case{Opcode::kLog, [](double x) { return std::log(x); }, 1, 0},
                                           Case{Opcode::kErf, [](double x) { return std::erf(x); }, 1.5, 0},
                                           Case{Opcode::kTanh, [](double x) { return std::tanh(x); }, 2, 0},
                                           Case{Opcode::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.5,
                                                0x1p-142}),
                         [](const auto& info) { return std::string(opcodeName(info.param.opcode)); });

}  // namespace
}  // namespace qx::compiler
