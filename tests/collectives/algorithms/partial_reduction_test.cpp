#include "quincunx/collectives/algorithms/partial_reduction.h"

#include <gtest/gtest.h>

#include <vector>

#include "quincunx/kernels/reduce/reduce.h"

namespace qx::collectives {
namespace {

TEST(PartialReduction, NarrowTypesHavePartialResultsInF32WhereTheyAccumulate) {
  EXPECT_EQ(PartialReduction({ReduceOp::kSum}, DType::kBFloat16).dtype, DType::kFloat32);
  EXPECT_EQ(PartialReduction({ReduceOp::kProduct}, DType::kFloat8E5M2).dtype, DType::kFloat32);
  EXPECT_EQ(PartialReduction({ReduceOp::kMax}, DType::kFloat16).dtype, DType::kFloat16);
  EXPECT_EQ(PartialReduction({ReduceOp::kSum}, DType::kInt8).dtype, DType::kInt8);
  EXPECT_EQ(PartialReduction({ReduceOp::kAverage}, DType::kFloat64).first.op, ReduceOp::kSum);
  const PartialReduction scaled({ReduceOp::kPreMulSum, 3.0}, DType::kFloat32);
  EXPECT_EQ(scaled.first.pre_multiplier, 3.0);
  EXPECT_EQ(scaled.between.op, ReduceOp::kSum);
}

// What kernels::reduce gives at once for sums that are exact in f32.
TEST(PartialReduction, ItsLastStepGivesTheResultOfOneReduction) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    for (const int64_t count : {1, 7, 255, 256, 257, 1500}) {
      std::vector<float> ones(static_cast<size_t>(count), 1.0f), halves(static_cast<size_t>(count));
      for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<float>(i % 5) * 0.25f;
      const auto bytes = static_cast<size_t>(count * dtype_size_bytes(dtype));
      std::vector<std::byte> a(bytes), b(bytes), expected(bytes), got(bytes);
      const PartialReduction sum({ReduceOp::kSum}, dtype);
      finish_reduction(sum, ones.data(), count, 2, dtype, a.data());
      finish_reduction(sum, halves.data(), count, 2, dtype, b.data());
      std::vector<float> wide(static_cast<size_t>(count));
      widen(dtype, b.data(), count, wide.data());
      EXPECT_EQ(wide, halves);
      for (size_t i = 0; i < wide.size(); ++i) wide[i] += ones[i];
      const void* sources[] = {a.data(), b.data()};
      kernels::reduce(kernels::ReduceKind::kAverage, dtype, sources, count, expected.data());
      finish_reduction(PartialReduction({ReduceOp::kAverage}, dtype), wide.data(), count, 2, dtype, got.data());
      EXPECT_EQ(got, expected) << dtype_name(dtype) << " " << count;
    }
  }
}

TEST(PartialReduction, AveragesOfIntegersTruncateTowardZeroAtTheirWidth) {
  std::vector<int8_t> values = {-7, 7, -128, 127, 0};
  finish_reduction({{ReduceOp::kAverage}, DType::kInt8}, values.data(), 5, 300, DType::kInt8, values.data());
  EXPECT_EQ(values, (std::vector<int8_t>{0, 0, 0, 0, 0}));
  std::vector<uint64_t> large = {~uint64_t{0}, 10};
  finish_reduction({{ReduceOp::kAverage}, DType::kUInt64}, large.data(), 2, 3, DType::kUInt64, large.data());
  EXPECT_EQ(large, (std::vector<uint64_t>{~uint64_t{0} / 3, 3}));
  std::vector<int32_t> negative = {-7, -8};
  finish_reduction({{ReduceOp::kAverage}, DType::kInt32}, negative.data(), 2, 4, DType::kInt32, negative.data());
  EXPECT_EQ(negative, (std::vector<int32_t>{-1, -2}));
}

}  // namespace
}  // namespace qx::collectives
