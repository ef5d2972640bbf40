#include "quincunx/base/status.h"

#include <gtest/gtest.h>

namespace qx {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("value: must be even, got " + std::to_string(value));
  return value / 2;
}

Result<int> quarter(int value) {
  QX_ASSIGN_OR_RETURN(const int once, half(value));
  return half(once);
}

TEST(Status, IsOkByDefault) { EXPECT_TRUE(Status().ok()); }

TEST(Status, NamesItsCode) { EXPECT_EQ(deadline_exceeded("late").to_string(), "DEADLINE_EXCEEDED: late"); }

TEST(Result, CarriesAValue) { EXPECT_EQ(quarter(12).value(), 3); }

TEST(Result, CarriesTheFirstError) {
  const auto result = quarter(6);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().message(), "value: must be even, got 3");
}

TEST(Result, ValueOfAnErrorAborts) { EXPECT_DEATH(half(3).value(), "must be even"); }

}  // namespace
}  // namespace qx
