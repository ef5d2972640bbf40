#include "quincunx/lite/ops/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace qx::lite {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
TensorView view_of(std::vector<T>& values, DType dtype, const std::vector<int64_t>& shape) {
  return TensorView::contiguous(values.data(), dtype, shape).value();
}

TEST(ConvertElements, DropsFractionsAndKeepsLowBits) {
  std::vector<double> from = {1.7, -1.7, 255, 300, -0.4, 3e9};
  std::vector<int32_t> to(6);
  std::vector<uint8_t> bytes(6);
  ASSERT_TRUE(convert_elements(view_of(from, DType::kFloat64, {6}), view_of(to, DType::kInt32, {6})).ok());
  EXPECT_EQ(to, (std::vector<int32_t>{1, -1, 255, 300, 0, static_cast<int32_t>(3000000000u)}));
  ASSERT_TRUE(convert_elements(view_of(from, DType::kFloat64, {6}), view_of(bytes, DType::kUInt8, {6})).ok());
  EXPECT_EQ(bytes[1], 255);
  EXPECT_EQ(bytes[3], 300 - 256);
}

TEST(ConvertElements, GivesTheLeastIntegerForWhatFitsNone) {
  std::vector<double> from = {kNaN, kInfinity, -kInfinity, 1e30};
  std::vector<int64_t> to(4);
  ASSERT_TRUE(convert_elements(view_of(from, DType::kFloat64, {4}), view_of(to, DType::kInt64, {4})).ok());
  EXPECT_EQ(to, (std::vector<int64_t>(4, INT64_MIN)));
}

TEST(ConvertElements, RoundsLargeIntegersOnce) {
  // 2^24 + 1 lies between two floats; the nearest even one is below it.
  std::vector<int64_t> from = {(int64_t{1} << 24) + 1, (int64_t{1} << 24) + 3};
  std::vector<float> to(2);
  ASSERT_TRUE(convert_elements(view_of(from, DType::kInt64, {2}), view_of(to, DType::kFloat32, {2})).ok());
  EXPECT_EQ(to[0], 16777216.0f);
  EXPECT_EQ(to[1], 16777220.0f);
}

TEST(ConvertElements, RefusesDtypesThatItDoesNotCompute) {
  std::vector<float> from(2), to(4);
  const Status status = convert_elements(view_of(from, DType::kFloat32, {2}), view_of(to, DType::kComplex64, {2}));
  EXPECT_EQ(status.message(), "no conversion from float32[2] to complex64[2]");
}

TEST(CopyElements, FollowsStridesInRowsOfAnyLength) {
  for (const int64_t columns :
       std::vector<int64_t>{1, 3, kRowElements - 1, kRowElements, kRowElements + 1, 3 * kRowElements + 7}) {
    std::vector<int32_t> from(static_cast<size_t>(4 * columns)), to(from.size());
    std::iota(from.begin(), from.end(), 0);
    const TensorView x = view_of(from, DType::kInt32, {4, columns});
    const TensorView y = view_of(to, DType::kInt32, {columns, 4}).transpose(0, 1).value();
    ASSERT_TRUE(copy_elements(x, y).ok());
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        ASSERT_EQ(to[static_cast<size_t>(j * 4 + i)], from[static_cast<size_t>(i * columns + j)]);
      }
    }
  }
}

TEST(CopyElements, BroadcastsButNeverShrinks) {
  std::vector<float> from = {1, 2, 3}, to(6);
  ASSERT_TRUE(copy_elements(view_of(from, DType::kFloat32, {3}), view_of(to, DType::kFloat32, {2, 3})).ok());
  EXPECT_EQ(to, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(copy_elements(view_of(to, DType::kFloat32, {2, 3}), view_of(from, DType::kFloat32, {3})).message(),
            "the shape of float32[2, 3] does not broadcast to float32[3]");
  EXPECT_FALSE(copy_elements(view_of(from, DType::kFloat32, {3}), view_of(to, DType::kFloat32, {3, 2})).ok());
}

TEST(RowLoop, FoldsDimensionsThatStepEvenly) {
  std::vector<float> x(24), y(24);
  const TensorView a = view_of(x, DType::kFloat32, {2, 3, 4});
  const TensorView b = view_of(y, DType::kFloat32, {2, 3, 4});
  const TensorView* operands[] = {&a, &b};
  const RowLoop loop = RowLoop::create(operands).value();
  int64_t rows = 0, elements = 0;
  loop.run([&](const auto&, int64_t count) {
    ++rows;
    elements += count;
  });
  EXPECT_EQ(rows, 1) << "one row of all elements";
  EXPECT_EQ(elements, 24);
}

TEST(RowLoop, FollowsTheMemoryOfTheFirstOperand) {
  std::vector<float> x(24), y(24);
  const TensorView a = view_of(x, DType::kFloat32, {2, 3, 4}).transpose(1, 2).value();
  const TensorView b = view_of(y, DType::kFloat32, {2, 3, 4}).transpose(1, 2).value();
  const TensorView* operands[] = {&a, &b};
  const RowLoop loop = RowLoop::create(operands).value();
  int64_t rows = 0;
  loop.run([&](const auto&, int64_t) { ++rows; });
  EXPECT_EQ(rows, 1) << "one row of all elements";
  EXPECT_EQ(loop.stride(0), 1);
}

}  // namespace
}  // namespace qx::lite
