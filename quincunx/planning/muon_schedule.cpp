#include "quincunx/planning/muon_schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace qx::planning {
namespace {

int64_t aligned(int64_t elements) {
  return (elements + kMuonAlignmentElements - 1) / kMuonAlignmentElements * kMuonAlignmentElements;
}

// A cursor a peer into one flat buffer: first it counts, then it hands out places.
class PeerCursor {
 public:
  explicit PeerCursor(std::vector<int64_t>& counts) : counts_(counts), next_(counts.size()) {}
  void count(int64_t peer, int64_t elements) { counts_[static_cast<size_t>(peer)] += elements; }
  void start() {
    int64_t offset = 0;
    for (size_t peer = 0; peer < counts_.size(); ++peer) {
      next_[peer] = offset;
      offset += counts_[peer];
    }
  }
  int64_t take(int64_t peer, int64_t elements) {
    const int64_t offset = next_[static_cast<size_t>(peer)];
    next_[static_cast<size_t>(peer)] += elements;
    return offset;
  }

 private:
  std::vector<int64_t>& counts_;
  std::vector<int64_t> next_;
};

// Piece of one matrix on one rank.
struct Piece {
  const MuonMatrix* matrix;
  const MuonTensor* tensor;
  const MuonBox* box;
  int64_t rank;
  bool is_source;  // its data goes to the owner

  int64_t elements() const { return kMuonFlagElements + box->row_count * box->column_count; }
};

// Calls visit(piece) for the pieces of the matrices of `bucket` that have elements, in plan order.
template <typename Visit>
void for_each_piece(const MuonPlan& plan, int64_t bucket, const Visit& visit) {
  for (const MuonMatrix& matrix : plan.matrices) {
    if (matrix.bucket != bucket) continue;
    const MuonTensor& tensor = plan.tensors[static_cast<size_t>(matrix.tensor)];
    const int64_t source_replica = tensor.boxes[static_cast<size_t>(matrix.owner)].replica;
    for (size_t rank = 0; rank < tensor.boxes.size(); ++rank) {
      const MuonBox& box = tensor.boxes[rank];
      if (matrix.index < box.matrix_begin || matrix.index >= box.matrix_begin + box.matrix_count) continue;
      if (box.row_count == 0 || box.column_count == 0) continue;
      visit(Piece{&matrix, &tensor, &box, static_cast<int64_t>(rank), box.replica == source_replica});
    }
  }
}

struct Owned {
  std::map<const MuonMatrix*, int64_t> slot;
};

// Lays the owned matrices out by setting and shape, so that each batch is contiguous.
Owned lay_out_owned(const MuonPlan& plan, int64_t bucket, int64_t rank, MuonBucketSchedule& schedule) {
  std::vector<const MuonMatrix*> matrices;
  for (const MuonMatrix& matrix : plan.matrices) {
    if (matrix.bucket == bucket && matrix.owner == rank) matrices.push_back(&matrix);
  }
  const auto batch_key = [&](const MuonMatrix* matrix) {
    const MuonTensor& tensor = plan.tensors[static_cast<size_t>(matrix->tensor)];
    return std::tuple(tensor.settings, tensor.rows, tensor.columns);
  };
  // plan.matrices is one array in plan order: addresses break ties.
  std::sort(matrices.begin(), matrices.end(),
            [&](const auto* a, const auto* b) { return std::pair(batch_key(a), a) < std::pair(batch_key(b), b); });
  Owned owned;
  int64_t offset = 0;
  for (const MuonMatrix* matrix : matrices) {
    const MuonTensor& tensor = plan.tensors[static_cast<size_t>(matrix->tensor)];
    const auto slot = static_cast<int64_t>(schedule.owned.size());
    const bool starts_batch = slot == 0 || batch_key(matrices[static_cast<size_t>(slot - 1)]) != batch_key(matrix);
    if (starts_batch) {
      offset = aligned(offset);
      schedule.batches.push_back({tensor.settings, slot, 0, tensor.rows, tensor.columns, offset});
    }
    ++schedule.batches.back().num_matrices;
    schedule.owned.push_back({matrix->tensor, matrix->index, offset});
    owned.slot[matrix] = slot;
    offset += tensor.rows * tensor.columns;
  }
  schedule.whole_elements = offset;
  return owned;
}

struct Cursors {
  explicit Cursors(MuonBucketSchedule& schedule)
      : send(schedule.send_counts),
        receive(schedule.receive_counts),
        reply_send(schedule.reply_send_counts),
        reply_receive(schedule.reply_receive_counts) {}
  PeerCursor send, receive, reply_send, reply_receive;
};

void count_messages(const MuonPlan& plan, int64_t bucket, int64_t rank, Cursors& cursors,
                    MuonBucketSchedule& schedule) {
  for_each_piece(plan, bucket, [&](const Piece& piece) {
    const int64_t owner = piece.matrix->owner;
    if (piece.rank == owner) return;
    schedule.has_transport = 1;
    if (piece.rank == rank) {
      if (piece.is_source) cursors.send.count(owner, piece.elements());
      cursors.reply_receive.count(owner, piece.elements());
    } else if (owner == rank) {
      if (piece.is_source) cursors.receive.count(piece.rank, piece.elements());
      cursors.reply_send.count(piece.rank, piece.elements());
    }
  });
  cursors.send.start();
  cursors.receive.start();
  cursors.reply_send.start();
  cursors.reply_receive.start();
}

int64_t whole_offset(const MuonBucketSchedule& schedule, int64_t slot, const Piece& piece) {
  return schedule.owned[static_cast<size_t>(slot)].whole_offset + piece.box->row_begin * piece.tensor->columns +
         piece.box->column_begin;
}

void place_held(const Piece& piece, const Owned& owned, Cursors& cursors, MuonBucketSchedule& schedule) {
  MuonHeldPiece held;
  held.tensor = piece.matrix->tensor;
  held.local_matrix = piece.matrix->index - piece.box->matrix_begin;
  held.rows = piece.box->row_count;
  held.columns = piece.box->column_count;
  if (piece.rank == piece.matrix->owner) {
    held.slot = owned.slot.at(piece.matrix);
    held.whole_offset = whole_offset(schedule, held.slot, piece);
    held.whole_stride = piece.tensor->columns;
  } else {
    if (piece.is_source) held.send_offset = cursors.send.take(piece.matrix->owner, piece.elements());
    held.reply_offset = cursors.reply_receive.take(piece.matrix->owner, piece.elements());
  }
  schedule.held.push_back(held);
}

void place_remote(const Piece& piece, const Owned& owned, Cursors& cursors, MuonBucketSchedule& schedule) {
  MuonOwnerPiece remote;
  remote.slot = owned.slot.at(piece.matrix);
  remote.rows = piece.box->row_count;
  remote.columns = piece.box->column_count;
  remote.whole_offset = whole_offset(schedule, remote.slot, piece);
  remote.whole_stride = piece.tensor->columns;
  if (piece.is_source) remote.receive_offset = cursors.receive.take(piece.rank, piece.elements());
  remote.reply_offset = cursors.reply_send.take(piece.rank, piece.elements());
  schedule.remote.push_back(remote);
}

}  // namespace

Result<MuonSchedule> make_muon_schedule(const MuonPlan& plan, int64_t rank) {
  if (rank < 0 || rank >= plan.options.num_ranks) {
    return invalid_argument("rank: must be in [0, " + std::to_string(plan.options.num_ranks) + "), got " +
                            std::to_string(rank));
  }
  MuonSchedule result;
  for (int64_t bucket = 0; bucket < plan.num_buckets; ++bucket) {
    MuonBucketSchedule schedule;
    for (auto* counts : {&schedule.send_counts, &schedule.receive_counts, &schedule.reply_send_counts,
                         &schedule.reply_receive_counts}) {
      counts->assign(static_cast<size_t>(plan.options.num_ranks), 0);
    }
    const Owned owned = lay_out_owned(plan, bucket, rank, schedule);
    Cursors cursors(schedule);
    count_messages(plan, bucket, rank, cursors, schedule);
    for_each_piece(plan, bucket, [&](const Piece& piece) {
      if (piece.rank == rank) {
        place_held(piece, owned, cursors, schedule);
      } else if (piece.matrix->owner == rank) {
        place_remote(piece, owned, cursors, schedule);
      }
    });
    result.buckets.push_back(std::move(schedule));
  }
  return result;
}

}  // namespace qx::planning
