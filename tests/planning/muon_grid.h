// Descriptions of sharded parameters for the tests of the plan.
#pragma once

#include <algorithm>
#include <string>

#include "quincunx/planning/muon_plan.h"

namespace qx::planning {

// Rank `index` of `parts` holds ceil(size / parts) elements, the last ones fewer or none: PyTorch's Shard.
inline std::pair<int64_t, int64_t> chunk(int64_t size, int64_t parts, int64_t index) {
  const int64_t full = (size + parts - 1) / parts;
  const int64_t begin = std::min(size, full * index);
  return {begin, std::min(full, size - begin)};
}

inline MuonTensor replicated_rows(std::string name, int64_t rows, int64_t columns, int64_t replicas, int64_t shards) {
  MuonTensor tensor{.name = std::move(name), .num_matrices = 1, .rows = rows, .columns = columns, .boxes = {}};
  for (int64_t replica = 0; replica < replicas; ++replica) {
    for (int64_t shard = 0; shard < shards; ++shard) {
      const auto [begin, count] = chunk(rows, shards, shard);
      tensor.boxes.push_back({0, 1, begin, count, 0, columns, replica});
    }
  }
  return tensor;
}

inline MuonTensor row_sharded(std::string name, int64_t rows, int64_t columns, int64_t shards) {
  return replicated_rows(std::move(name), rows, columns, 1, shards);
}

inline MuonTensor column_sharded(std::string name, int64_t matrices, int64_t rows, int64_t columns, int64_t shards) {
  MuonTensor tensor{.name = std::move(name), .num_matrices = matrices, .rows = rows, .columns = columns, .boxes = {}};
  for (int64_t shard = 0; shard < shards; ++shard) {
    const auto [begin, count] = chunk(columns, shards, shard);
    tensor.boxes.push_back({0, matrices, 0, rows, begin, count, 0});
  }
  return tensor;
}

inline MuonTensor expert_sharded(std::string name, int64_t experts, int64_t rows, int64_t columns, int64_t shards) {
  MuonTensor tensor{.name = std::move(name), .num_matrices = experts, .rows = rows, .columns = columns, .boxes = {}};
  for (int64_t shard = 0; shard < shards; ++shard) {
    const auto [begin, count] = chunk(experts, shards, shard);
    tensor.boxes.push_back({begin, count, 0, rows, 0, columns, 0});
  }
  return tensor;
}

}  // namespace qx::planning
