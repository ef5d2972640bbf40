// Who orthogonalises which matrix. The Muon optimizer needs every matrix whole, once; the ranks hold pieces of it, and
// replicas of those pieces. The plan gives each matrix one owner in the whole grid of ranks (replicas included), so
// that no matrix is orthogonalised twice, and cuts the work into buckets whose buffers stay under a memory cap.
// Pure data: the same plan is made on every rank from the same description, and hash() says whether it was the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::planning {

// The part of a tensor that one rank holds: a box of matrices x rows x columns. Any of the counts may be zero.
struct MuonBox {
  int64_t matrix_begin = 0;
  int64_t matrix_count = 0;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  int64_t column_begin = 0;
  int64_t column_count = 0;
  // Boxes of one replica tile the tensor; boxes of different replicas repeat it.
  int64_t replica = 0;

  int64_t num_elements() const { return matrix_count * row_count * column_count; }
};

// One parameter: a batch of matrices of one shape.
struct MuonTensor {
  std::string name;  // for messages and for the hash
  int64_t num_matrices = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t num_steps = 5;  // Newton-Schulz steps, for the cost; the form is the one the kernel chooses for the shape
  int64_t settings = 0;   // matrices with different settings never share a batch
  std::vector<MuonBox> boxes;  // one a rank
};

struct MuonPlanOptions {
  int64_t num_ranks = 1;
  // Upper bound of the bytes that a step adds on any rank: transport buffers, whole matrices and the scratch memory of
  // the Newton-Schulz kernel. 0: one bucket.
  int64_t memory_cap_bytes = 0;
  // Matrices that the kernel works on at the same time on one rank, each with scratch memory of its own.
  int64_t num_threads = 1;
};

struct MuonMatrix {
  int64_t tensor = 0;
  int64_t index = 0;  // within the tensor
  int64_t owner = 0;
  int64_t bucket = 0;
  int64_t flops = 0;
  int64_t is_gram = 0;  // 1: the kernel works on the Gram matrix of this shape
};

struct MuonPlan {
  MuonPlanOptions options;
  std::vector<MuonTensor> tensors;
  std::vector<MuonMatrix> matrices;  // by tensor, then index
  int64_t num_buckets = 0;
  std::vector<int64_t> rank_flops;         // one a rank
  std::vector<int64_t> bucket_peak_bytes;  // one a bucket: the largest over ranks

  // Most loaded rank over the mean; 1 is perfect. 1 for a plan without work.
  double imbalance() const;
  // Equal on two ranks exactly when they made the same plan from the same description (64-bit FNV-1a).
  uint64_t hash() const;
  // The same for the description of one tensor: shows which parameter the ranks disagree about.
  uint64_t tensor_hash(int64_t tensor) const;
};

// Checks the description (boxes in bounds, tiling each replica without gap or overlap), assigns owners by
// longest processing time first, and fills buckets in that order. A matrix that one rank holds whole stays with a rank
// that holds it whole, so experts sharded by expert need no communication.
// Fails with kInvalidArgument naming the tensor; also when one matrix alone exceeds the memory cap.
Result<MuonPlan> make_muon_plan(std::vector<MuonTensor> tensors, const MuonPlanOptions& options);

}  // namespace qx::planning
