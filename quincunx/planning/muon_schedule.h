// One rank's part of a MuonPlan: what it sends, where it puts what it receives, what it orthogonalises. All offsets
// count f32 elements. A message between two ranks is a run of pieces in plan order; a piece is one flag (1: the sender
// has a gradient; in the reply 1: apply the update) and then rows x columns values, row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/planning/muon_plan.h"

namespace qx::planning {

inline constexpr int64_t kMuonFlagElements = 1;
// Whole matrices start at multiples of one cache line.
inline constexpr int64_t kMuonAlignmentElements = 16;

// This rank's piece of one matrix.
struct MuonHeldPiece {
  int64_t tensor = 0;
  int64_t local_matrix = 0;  // within this rank's box
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t slot = -1;          // >= 0: this rank owns the matrix, which has this place in `owned`
  int64_t whole_offset = -1;  // with slot: where the piece begins in the buffer of whole matrices
  int64_t whole_stride = 0;   // with slot: elements between rows there
  int64_t send_offset = -1;   // >= 0: place of the flag in the send buffer. -1: own, or another replica is the source
  int64_t reply_offset = -1;  // >= 0: place of the flag in the buffer of received replies
};

// Another rank's piece of a matrix that this rank owns.
struct MuonOwnerPiece {
  int64_t slot = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t whole_offset = 0;
  int64_t whole_stride = 0;
  int64_t receive_offset = -1;  // -1: the piece came from another replica
  int64_t reply_offset = 0;     // place of the flag in the buffer of sent replies
};

struct MuonOwnedMatrix {
  int64_t tensor = 0;
  int64_t index = 0;
  int64_t whole_offset = 0;
};

// Consecutive slots of one shape and one setting, contiguous in memory: one batched Newton-Schulz call.
struct MuonBatch {
  int64_t settings = 0;
  int64_t first_slot = 0;
  int64_t num_matrices = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t whole_offset = 0;
};

struct MuonBucketSchedule {
  std::vector<MuonHeldPiece> held;
  std::vector<MuonOwnerPiece> remote;
  std::vector<MuonOwnedMatrix> owned;
  std::vector<MuonBatch> batches;
  int64_t whole_elements = 0;
  int64_t has_transport = 0;  // 1: some rank sends something in this bucket. The same on every rank
  // Elements to and from each rank, as all_to_all takes them.
  std::vector<int64_t> send_counts;
  std::vector<int64_t> receive_counts;
  std::vector<int64_t> reply_send_counts;
  std::vector<int64_t> reply_receive_counts;
};

struct MuonSchedule {
  std::vector<MuonBucketSchedule> buckets;
};

// `rank` must be in [0, plan.options.num_ranks).
Result<MuonSchedule> make_muon_schedule(const MuonPlan& plan, int64_t rank);

}  // namespace qx::planning
