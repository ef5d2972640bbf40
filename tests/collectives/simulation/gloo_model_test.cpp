#include "quincunx/collectives/simulation/gloo_model.h"

#include <gtest/gtest.h>

namespace qx::collectives {
namespace {

struct Published {
  int64_t num_ranks;
  double star_s;
  double batched_s;
};
// pytorch/gloo#408.
constexpr Published kPublished[] = {{2048, 82, 18}, {4096, 393, 25}, {8192, 55 * 60, 85}};

TEST(GlooModel, IsWithinTwiceOfThePublishedTimes) {
  for (const Published& published : kPublished) {
    const double star_s = estimate_gloo(published.num_ranks, false).total_s;
    const double batched_s = estimate_gloo(published.num_ranks, true).total_s;
    EXPECT_GT(star_s, published.star_s / 2) << published.num_ranks;
    EXPECT_LT(star_s, published.star_s * 2) << published.num_ranks;
    EXPECT_GT(batched_s, published.batched_s / 2) << published.num_ranks;
    EXPECT_LT(batched_s, published.batched_s * 2) << published.num_ranks;
  }
}

// The law of the protocol, with no number of the model in it: N ranks read N values of N entries.
TEST(GlooModel, BytesOfTheStoreGrowWithTheCubeOfTheRanks) {
  const double small = estimate_gloo(100'000, false).server_bytes;
  const double large = estimate_gloo(200'000, false).server_bytes;
  EXPECT_NEAR(large / small, 8, 0.01);
  EXPECT_NEAR(estimate_gloo(200'000, true).server_bytes / estimate_gloo(100'000, true).server_bytes, 4, 1e-9);
  EXPECT_NEAR(static_cast<double>(estimate_gloo(1024, false).bytes_rank), 8.5e6, 0.2e6) << "measured: 8.5 MB";
}

TEST(GlooModel, FollowsItsParameters) {
  const GlooEstimate base = estimate_gloo(1000, false);
  const auto changed = [&](auto change) {
    GlooModel model;
    change(model);
    return estimate_gloo(1000, false, model);
  };
  EXPECT_GT(changed([](GlooModel& m) { m.request_s *= 2; }).store_s, base.store_s);
  EXPECT_GT(changed([](GlooModel& m) { m.key_s *= 2; }).store_s, base.store_s);
  EXPECT_LT(changed([](GlooModel& m) { m.server_bytes_per_s *= 2; }).store_s, base.store_s);
  EXPECT_GT(changed([](GlooModel& m) { m.connect_s *= 2; }).mesh_s, base.mesh_s);
  EXPECT_GT(changed([](GlooModel& m) { m.start_s += 1; }).total_s, base.total_s);
  EXPECT_GT(changed([](GlooModel& m) { m.address_bytes += 1; }).bytes_rank, base.bytes_rank);
  EXPECT_GT(changed([](GlooModel& m) { m.pair_bytes += 1; }).bytes_rank, base.bytes_rank);
  EXPECT_EQ(estimate_gloo(1, false).mesh_s, 0);
}

}  // namespace
}  // namespace qx::collectives
