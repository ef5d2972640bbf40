#include "quincunx/tile/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tile/programs.h"

namespace qx::tile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TileProgram, TextReadsBack) {
  for (const char* text : {kSoftmax, kRmsNorm}) EXPECT_EQ(to_text(parse(text).value()), text);
}

TEST(TileProgram, NumbersReadBack) {
  for (const double number : {0.1, -0.0, 1e300, -std::numeric_limits<double>::infinity()}) {
    Program program = parse(kRmsNorm).value();
    program.code[4].number = number;
    EXPECT_EQ(parse(to_text(program)).value(), program) << number;
  }
}

TEST(TileProgram, KnowsLevelsAndRowConstants) {
  EXPECT_THAT(levels(parse(kSoftmax).value()), ElementsAre(0, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(row_constants(parse(kSoftmax).value()), ElementsAre(false, true, false, false, true, false, false));
}

struct Fault {
  const char* name;
  const char* from;
  const char* to;
  const char* message;
};

class TileProgramFinds : public testing::TestWithParam<Fault> {};

TEST_P(TileProgramFinds, TheFault) {
  std::string text = kRmsNorm;
  const size_t place = text.find(GetParam().from);
  ASSERT_NE(place, std::string::npos);
  text.replace(place, std::string(GetParam().from).size(), GetParam().to);
  const auto program = parse(text);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(program.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, TileProgramFinds,
    testing::Values(
        Fault{"Version", "tile 1", "tile 2", "line 1: cannot read \"tile 2\""},
        Fault{"Axes", "axes 2", "axes 9", "axes: expected 0 to 8, got 9"},
        Fault{"AxesText", "axes 2", "axes two", "line 2"}, Fault{"Opcode", "= rsqrt", "= rsqr", "line 13: cannot read"},
        Fault{"DType", "load bfloat16", "load bfloat17", "line 7"},
        Fault{"Unsupported", "input bfloat16", "input complex64", "complex64 is not one of"},
        Fault{"Numbering", "%2 =", "%3 =", "line 9"},
        Fault{"Trailing", "mul float32 %1 %1", "mul float32 %1 %1 %1", "line 9"},
        Fault{"Missing", "mul float32 %1 %1", "mul float32 %1", "line 9"},
        Fault{"Order", "mul float32 %1 %1", "mul float32 %1 %2", "%2 mul: expected values before it, got %2"},
        Fault{"Axis", "[1]", "[2]", "input: expected different axes below 2, got 2"},
        Fault{"Repeated", "[0, 1]", "[0, 0]", "got 0"},
        Fault{"Mixed", "%1 = cast float32 %0", "%1 = neg bfloat16 %0", "%2 mul: expected an operand of float32"},
        Fault{"LoadDType", "load float32 1", "load float32 0", "expected the tensor's dtype bfloat16"},
        Fault{"LoadRange", "load float32 1", "load float32 2", "expected a tensor below 2, got 2"},
        Fault{"Twice", "store float32 %3 1", "store float32 %9 0", "output 0: expected one store, got 2"},
        Fault{"NotConstant", "store float32 %3 1", "store float32 %9 1", "the same all along a row"},
        Fault{"Bool", "rsqrt float32 %5", "not float32 %5", "expected an operand of bool, got float32"},
        Fault{"LineEnd", "%11 = store float32 %3 1\n", "%11 = store float32 %3 1", "line 18"}),
    [](const testing::TestParamInfo<Fault>& info) { return info.param.name; });

TEST(TileProgram, RefusesFloatOperatorsOnIntegers) {
  const std::string text = "tile 1\naxes 0\ninput int32 []\noutput int32 []\n%0 = load int32 0\n%1 = exp int32 %0\n";
  EXPECT_THAT(parse(text + "%2 = store int32 %1 0\n").status().message(), HasSubstr("floating-point"));
}

TEST(TileProgram, RefusesReductionsWithoutAnAxis) {
  const std::string text = "tile 1\naxes 0\ninput int32 []\noutput int32 []\n%0 = load int32 0\n";
  EXPECT_THAT(parse(text + "%1 = reduce_sum int32 %0\n%2 = store int32 %1 0\n").status().message(),
              HasSubstr("no axis to reduce"));
}

TEST(TileProgram, RefusesEmptyText) { EXPECT_THAT(parse("").status().message(), HasSubstr("\"tile 1\"")); }

}  // namespace
}  // namespace qx::tile
