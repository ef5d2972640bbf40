#include "quincunx/planning/muon_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planning/muon_grid.h"
#include "quincunx/kernels/newton_schulz/newton_schulz.h"

namespace qx::planning {
namespace {

using ::testing::HasSubstr;

MuonPlan plan_of(std::vector<MuonTensor> tensors, MuonPlanOptions options) {
  auto plan = make_muon_plan(std::move(tensors), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return std::move(plan).value();
}

Status error_of(std::vector<MuonTensor> tensors, MuonPlanOptions options) {
  return make_muon_plan(std::move(tensors), options).status();
}

TEST(MuonPlan, GivesEachMatrixOneOwner) {
  const MuonPlan plan = plan_of({row_sharded("a", 8, 6, 2), row_sharded("b", 4, 4, 2)}, {.num_ranks = 2});
  ASSERT_EQ(plan.matrices.size(), 2u);
  EXPECT_EQ(plan.matrices[0].owner, 0);
  EXPECT_EQ(plan.matrices[1].owner, 1);
  EXPECT_EQ(plan.num_buckets, 1);
}

TEST(MuonPlan, CostsAreThoseOfTheKernel) {
  const MuonPlan plan = plan_of({row_sharded("wide", 8, 64, 2)}, {.num_ranks = 2});
  EXPECT_EQ(plan.matrices[0].flops,
            static_cast<int64_t>(kernels::newton_schulz_flops(8, 64, 5, kernels::NewtonSchulzForm::kAuto)));
}

// Longest processing time first on costs 1 x large and 4 x small: the large one is alone, the small ones share.
TEST(MuonPlan, BalancesByCostNotByCount) {
  std::vector<MuonTensor> tensors = {row_sharded("large", 64, 64, 2)};
  for (int i = 0; i < 4; ++i) tensors.push_back(row_sharded("small", 16, 16, 2));
  const MuonPlan plan = plan_of(tensors, {.num_ranks = 2});
  for (size_t i = 1; i < plan.matrices.size(); ++i) EXPECT_NE(plan.matrices[i].owner, plan.matrices[0].owner);
  EXPECT_GT(plan.imbalance(), 1.0);
}

TEST(MuonPlan, EqualMatricesAreBalancedPerfectly) {
  std::vector<MuonTensor> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back(row_sharded("w", 16, 16, 4));
  EXPECT_DOUBLE_EQ(plan_of(tensors, {.num_ranks = 4}).imbalance(), 1.0);
}

TEST(MuonPlan, ExpertsStayWithTheirHolder) {
  const MuonPlan plan = plan_of({expert_sharded("experts", 5, 8, 8, 2)}, {.num_ranks = 2});
  const std::vector<int64_t> owners = {0, 0, 0, 1, 1};
  for (size_t i = 0; i < owners.size(); ++i) EXPECT_EQ(plan.matrices[i].owner, owners[i]);
}

TEST(MuonPlan, ReplicasShareTheWork) {
  std::vector<MuonTensor> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back(replicated_rows("w", 16, 16, 2, 2));
  const MuonPlan plan = plan_of(tensors, {.num_ranks = 4});
  std::map<int64_t, int> matrices_of;
  for (const MuonMatrix& matrix : plan.matrices) ++matrices_of[matrix.owner];
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(matrices_of[rank], 2);
}

TEST(MuonPlan, BucketsStayUnderTheCap) {
  std::vector<MuonTensor> tensors;
  for (int i = 0; i < 60; ++i) tensors.push_back(row_sharded("w", 24, 40, 3));
  const int64_t one_bucket = plan_of(tensors, {.num_ranks = 3}).bucket_peak_bytes[0];
  const int64_t cap = one_bucket / 2;
  const MuonPlan plan = plan_of(tensors, {.num_ranks = 3, .memory_cap_bytes = cap});
  EXPECT_GT(plan.num_buckets, 1);
  for (const int64_t bytes : plan.bucket_peak_bytes) EXPECT_LE(bytes, cap);
}

TEST(MuonPlan, RejectsACapBelowOneMatrix) {
  const Status status = error_of({row_sharded("layer.weight", 24, 40, 3)}, {.num_ranks = 3, .memory_cap_bytes = 100});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("layer.weight"));
  EXPECT_THAT(status.message(), HasSubstr("memory_cap_bytes"));
}

TEST(MuonPlan, SkipsEmptyMatrices) {
  const MuonPlan plan = plan_of({row_sharded("none", 0, 4, 2), row_sharded("some", 2, 4, 2)}, {.num_ranks = 2});
  ASSERT_EQ(plan.matrices.size(), 1u);
  EXPECT_EQ(plan.matrices[0].tensor, 1);
}

TEST(MuonPlan, OfNothingIsEmpty) {
  const MuonPlan plan = plan_of({}, {.num_ranks = 2});
  EXPECT_EQ(plan.num_buckets, 0);
  EXPECT_DOUBLE_EQ(plan.imbalance(), 1.0);
}

TEST(MuonPlan, RejectsAGap) {
  MuonTensor tensor = row_sharded("w", 8, 4, 2);
  tensor.boxes[1].row_count -= 1;
  EXPECT_THAT(error_of({tensor}, {.num_ranks = 2}).message(), HasSubstr("hold 28 of 32 elements"));
}

TEST(MuonPlan, RejectsAnOverlap) {
  MuonTensor tensor = row_sharded("w", 8, 4, 2);
  tensor.boxes[1].row_begin -= 1;
  EXPECT_THAT(error_of({tensor}, {.num_ranks = 2}).message(), HasSubstr("hold the same elements"));
}

TEST(MuonPlan, RejectsABoxOutOfBounds) {
  MuonTensor tensor = row_sharded("w", 8, 4, 2);
  tensor.boxes[1].row_begin += 1;
  EXPECT_THAT(error_of({tensor}, {.num_ranks = 2}).message(), HasSubstr("outside"));
}

TEST(MuonPlan, RejectsAWrongNumberOfBoxes) {
  EXPECT_THAT(error_of({row_sharded("w", 8, 4, 3)}, {.num_ranks = 2}).message(), HasSubstr("expected a box for each"));
}

TEST(MuonPlan, RejectsBadOptions) {
  EXPECT_THAT(error_of({}, {.num_ranks = 0}).message(), HasSubstr("num_ranks"));
  EXPECT_THAT(error_of({}, {.memory_cap_bytes = -1}).message(), HasSubstr("memory_cap_bytes"));
  EXPECT_THAT(error_of({}, {.num_threads = 0}).message(), HasSubstr("num_threads"));
  MuonTensor tensor = row_sharded("w", 8, 4, 1);
  tensor.num_steps = 0;
  EXPECT_THAT(error_of({tensor}, {.num_ranks = 1}).message(), HasSubstr("num_steps"));
}

TEST(MuonPlan, HashSeesEveryPartOfTheDescription) {
  const MuonTensor tensor = row_sharded("w", 8, 4, 2);
  const uint64_t hash = plan_of({tensor}, {.num_ranks = 2}).hash();
  EXPECT_EQ(plan_of({tensor}, {.num_ranks = 2}).hash(), hash);
  MuonTensor renamed = tensor, reset = tensor, slower = tensor;
  renamed.name = "v";
  reset.settings = 1;
  slower.num_steps = 6;
  for (const MuonTensor& other : {renamed, reset, slower, row_sharded("w", 8, 5, 2), row_sharded("w", 7, 4, 2)}) {
    EXPECT_NE(plan_of({other}, {.num_ranks = 2}).hash(), hash);
    EXPECT_NE(plan_of({other}, {.num_ranks = 2}).tensor_hash(0), plan_of({tensor}, {.num_ranks = 2}).tensor_hash(0));
  }
  EXPECT_NE(plan_of({tensor}, {.num_ranks = 2, .memory_cap_bytes = 1 << 20}).hash(), hash);
}

}  // namespace
}  // namespace qx::planning
