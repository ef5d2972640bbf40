#include "quincunx/planning/muon_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "planning/muon_grid.h"

namespace qx::planning {
namespace {

struct World {
  MuonPlan plan;
  std::vector<MuonSchedule> ranks;
};

World world_of(std::vector<MuonTensor> tensors, MuonPlanOptions options) {
  auto plan = make_muon_plan(std::move(tensors), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  World world{std::move(plan).value(), {}};
  for (int64_t rank = 0; rank < options.num_ranks; ++rank) {
    world.ranks.push_back(make_muon_schedule(world.plan, rank).value());
  }
  return world;
}

float element(int64_t tensor, int64_t matrix, int64_t row, int64_t column) {
  return static_cast<float>(((tensor * 10 + matrix) * 100 + row) * 100 + column);
}

using Buffers = std::vector<std::vector<float>>;  // one a rank

std::vector<float> zeros(const std::vector<int64_t>& counts) {
  return std::vector<float>(static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})), 0.0f);
}

// all_to_all on flat buffers by the counts of every rank.
void exchange(const Buffers& send, Buffers& receive, const std::vector<std::vector<int64_t>>& send_counts,
              const std::vector<std::vector<int64_t>>& receive_counts) {
  const size_t n = send.size();
  for (size_t from = 0; from < n; ++from) {
    size_t read = 0;
    for (size_t to = 0; to < n; ++to) {
      ASSERT_EQ(send_counts[from][to], receive_counts[to][from]);
      size_t write = 0;
      for (size_t before = 0; before < from; ++before) write += static_cast<size_t>(receive_counts[to][before]);
      for (int64_t i = 0; i < send_counts[from][to]; ++i) receive[to][write++] = send[from][read++];
    }
  }
}

// Runs the data movement of one bucket: values travel to the owners, are doubled there, and come back.
void check_round_trip(const World& world, size_t bucket) {
  const size_t n = world.ranks.size();
  Buffers whole(n), send(n), receive(n), reply_send(n), reply_receive(n);
  std::vector<std::vector<int64_t>> counts[4];
  for (size_t rank = 0; rank < n; ++rank) {
    const auto& schedule = world.ranks[rank].buckets[bucket];
    whole[rank].assign(static_cast<size_t>(schedule.whole_elements), -1.0f);
    send[rank] = zeros(schedule.send_counts);
    receive[rank] = zeros(schedule.receive_counts);
    reply_send[rank] = zeros(schedule.reply_send_counts);
    reply_receive[rank] = zeros(schedule.reply_receive_counts);
    counts[0].push_back(schedule.send_counts);
    counts[1].push_back(schedule.receive_counts);
    counts[2].push_back(schedule.reply_send_counts);
    counts[3].push_back(schedule.reply_receive_counts);
    for (const MuonHeldPiece& held : schedule.held) {
      const MuonBox& box = world.plan.tensors[static_cast<size_t>(held.tensor)].boxes[rank];
      for (int64_t i = 0; i < held.rows * held.columns; ++i) {
        const int64_t row = i / held.columns, column = i % held.columns;
        const float value =
            element(held.tensor, box.matrix_begin + held.local_matrix, box.row_begin + row, box.column_begin + column);
        if (held.slot >= 0)
          whole[rank].at(static_cast<size_t>(held.whole_offset + row * held.whole_stride + column)) = value;
        if (held.send_offset >= 0) send[rank].at(static_cast<size_t>(held.send_offset + kMuonFlagElements + i)) = value;
      }
    }
  }
  exchange(send, receive, counts[0], counts[1]);
  for (size_t rank = 0; rank < n; ++rank) {
    const auto& schedule = world.ranks[rank].buckets[bucket];
    for (const MuonOwnerPiece& piece : schedule.remote) {
      for (int64_t i = 0; i < piece.rows * piece.columns && piece.receive_offset >= 0; ++i) {
        const int64_t row = i / piece.columns, column = i % piece.columns;
        whole[rank].at(static_cast<size_t>(piece.whole_offset + row * piece.whole_stride + column)) =
            receive[rank].at(static_cast<size_t>(piece.receive_offset + kMuonFlagElements + i));
      }
    }
    for (const MuonOwnedMatrix& owned : schedule.owned) {
      const MuonTensor& tensor = world.plan.tensors[static_cast<size_t>(owned.tensor)];
      for (int64_t i = 0; i < tensor.rows * tensor.columns; ++i) {
        ASSERT_EQ(whole[rank].at(static_cast<size_t>(owned.whole_offset + i)),
                  element(owned.tensor, owned.index, i / tensor.columns, i % tensor.columns));
      }
    }
    for (const MuonOwnerPiece& piece : schedule.remote) {
      for (int64_t i = 0; i < piece.rows * piece.columns; ++i) {
        const int64_t row = i / piece.columns, column = i % piece.columns;
        reply_send[rank].at(static_cast<size_t>(piece.reply_offset + kMuonFlagElements + i)) =
            2.0f * whole[rank].at(static_cast<size_t>(piece.whole_offset + row * piece.whole_stride + column));
      }
    }
  }
  exchange(reply_send, reply_receive, counts[2], counts[3]);
  for (size_t rank = 0; rank < n; ++rank) {
    for (const MuonHeldPiece& held : world.ranks[rank].buckets[bucket].held) {
      if (held.slot >= 0) continue;
      const MuonBox& box = world.plan.tensors[static_cast<size_t>(held.tensor)].boxes[rank];
      for (int64_t i = 0; i < held.rows * held.columns; ++i) {
        ASSERT_EQ(reply_receive[rank].at(static_cast<size_t>(held.reply_offset + kMuonFlagElements + i)),
                  2.0f * element(held.tensor, box.matrix_begin + held.local_matrix, box.row_begin + i / held.columns,
                                 box.column_begin + i % held.columns));
      }
    }
  }
}

int64_t num_owned(const World& world) {
  int64_t count = 0;
  for (const MuonSchedule& rank : world.ranks) {
    for (const MuonBucketSchedule& bucket : rank.buckets) count += static_cast<int64_t>(bucket.owned.size());
  }
  return count;
}

class MuonScheduleOfRanks : public ::testing::TestWithParam<int64_t> {};

TEST_P(MuonScheduleOfRanks, MovesEveryElementThereAndBack) {
  const int64_t ranks = GetParam();
  std::vector<MuonTensor> tensors;
  for (const int64_t rows : {1, 2, 3, 5, 7, 18}) tensors.push_back(row_sharded("rows", rows, 4, ranks));
  tensors.push_back(column_sharded("columns", 3, 4, 7, ranks));
  tensors.push_back(expert_sharded("experts", 5, 3, 4, ranks));
  for (const int64_t cap : {int64_t{0}, int64_t{60000}}) {
    const World world = world_of(tensors, {.num_ranks = ranks, .memory_cap_bytes = cap});
    EXPECT_EQ(num_owned(world), static_cast<int64_t>(world.plan.matrices.size()));
    for (size_t bucket = 0; bucket < static_cast<size_t>(world.plan.num_buckets); ++bucket) {
      check_round_trip(world, bucket);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MuonScheduleOfRanks, ::testing::Values(1, 2, 3, 4));

TEST(MuonSchedule, RepliesReachEveryReplica) {
  const World world =
      world_of({replicated_rows("a", 5, 4, 2, 2), replicated_rows("b", 6, 3, 2, 2), replicated_rows("c", 6, 3, 2, 2)},
               {.num_ranks = 4});
  EXPECT_EQ(num_owned(world), 3);
  check_round_trip(world, 0);
}

TEST(MuonSchedule, TwoShardedDimsAreRectangles) {
  MuonTensor tensor{.name = "w", .num_matrices = 1, .rows = 5, .columns = 3, .boxes = {}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto [row, rows] = chunk(5, 2, rank / 2);
    const auto [column, columns] = chunk(3, 2, rank % 2);
    tensor.boxes.push_back({0, 1, row, rows, column, columns, 0});
  }
  check_round_trip(world_of({tensor}, {.num_ranks = 4}), 0);
}

TEST(MuonSchedule, ExpertsSendNothing) {
  const World world = world_of({expert_sharded("experts", 5, 3, 4, 2)}, {.num_ranks = 2});
  for (const MuonSchedule& rank : world.ranks) {
    EXPECT_THAT(rank.buckets[0].send_counts, ::testing::Each(0));
    EXPECT_THAT(rank.buckets[0].reply_send_counts, ::testing::Each(0));
  }
}

TEST(MuonSchedule, SameShapesFormOneBatchAndSettingsSplitIt) {
  std::vector<MuonTensor> tensors = {row_sharded("a", 4, 6, 1), row_sharded("b", 6, 4, 1), row_sharded("c", 4, 6, 1),
                                     row_sharded("d", 4, 6, 1)};
  tensors[3].settings = 1;
  const World world = world_of(tensors, {.num_ranks = 1});
  const auto& batches = world.ranks[0].buckets[0].batches;
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].num_matrices, 2);
  EXPECT_EQ(batches[0].rows, 4);
  EXPECT_EQ(batches[1].num_matrices, 1);
  EXPECT_EQ(batches[2].settings, 1);
  for (const MuonBatch& batch : batches) EXPECT_EQ(batch.whole_offset % kMuonAlignmentElements, 0);
}

TEST(MuonSchedule, RejectsARankOutsideOfTheGrid) {
  const World world = world_of({row_sharded("a", 4, 6, 2)}, {.num_ranks = 2});
  EXPECT_THAT(make_muon_schedule(world.plan, 2).status().message(), ::testing::HasSubstr("rank: must be in [0, 2)"));
  EXPECT_FALSE(make_muon_schedule(world.plan, -1).ok());
}

}  // namespace
}  // namespace qx::planning
