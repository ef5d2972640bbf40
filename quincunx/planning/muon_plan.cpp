#include "quincunx/planning/muon_plan.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "quincunx/base/fnv1a.h"
#include "quincunx/kernels/newton_schulz/newton_schulz.h"

namespace qx::planning {
namespace {

constexpr int64_t kElementBytes = sizeof(float);

std::string shape_text(const MuonTensor& tensor) {
  return "[" + std::to_string(tensor.num_matrices) + ", " + std::to_string(tensor.rows) + ", " +
         std::to_string(tensor.columns) + "]";
}

Status error_in(const MuonTensor& tensor, const std::string& text) {
  return invalid_argument("parameter " + tensor.name + " " + shape_text(tensor) + ": " + text);
}

bool covers_whole_matrix(const MuonTensor& tensor, const MuonBox& box) {
  return box.row_count == tensor.rows && box.column_count == tensor.columns;
}

bool holds_matrix(const MuonBox& box, int64_t index) {
  return index >= box.matrix_begin && index < box.matrix_begin + box.matrix_count;
}

bool in_bounds(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && begin <= size && count <= size - begin;
}

bool intervals_meet(int64_t begin_a, int64_t count_a, int64_t begin_b, int64_t count_b) {
  return begin_a < begin_b + count_b && begin_b < begin_a + count_a;
}

bool overlap(const MuonBox& a, const MuonBox& b) {
  return intervals_meet(a.matrix_begin, a.matrix_count, b.matrix_begin, b.matrix_count) &&
         intervals_meet(a.row_begin, a.row_count, b.row_begin, b.row_count) &&
         intervals_meet(a.column_begin, a.column_count, b.column_begin, b.column_count);
}

// Equal volume without overlap is a tiling.
Status check_replica(const MuonTensor& tensor, std::span<const MuonBox> boxes) {
  const int64_t expected = tensor.num_matrices * tensor.rows * tensor.columns;
  int64_t covered = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    covered += boxes[i].num_elements();
    for (size_t j = 0; j < i; ++j) {
      if (overlap(boxes[i], boxes[j])) {
        return error_in(tensor, "two ranks of replica " + std::to_string(boxes[i].replica) + " hold the same elements");
      }
    }
  }
  if (covered != expected) {
    return error_in(tensor, "the ranks of replica " + std::to_string(boxes[0].replica) + " hold " +
                                std::to_string(covered) + " of " + std::to_string(expected) + " elements");
  }
  return ok_status();
}

Status check_tensor(const MuonTensor& tensor, const MuonPlanOptions& options) {
  if (tensor.num_matrices < 0 || tensor.rows < 0 || tensor.columns < 0) return error_in(tensor, "sizes must be >= 0");
  if (tensor.num_steps < 1) return error_in(tensor, "num_steps must be >= 1, got " + std::to_string(tensor.num_steps));
  int64_t elements = kElementBytes;
  for (const int64_t size : {tensor.num_matrices, tensor.rows, tensor.columns}) {
    if (__builtin_mul_overflow(elements, size, &elements)) return error_in(tensor, "the size in bytes overflows");
  }
  if (static_cast<int64_t>(tensor.boxes.size()) != options.num_ranks) {
    return error_in(tensor, "expected a box for each of the " + std::to_string(options.num_ranks) + " ranks, got " +
                                std::to_string(tensor.boxes.size()));
  }
  std::vector<MuonBox> boxes = tensor.boxes;
  for (const MuonBox& box : boxes) {
    if (!in_bounds(box.matrix_begin, box.matrix_count, tensor.num_matrices) ||
        !in_bounds(box.row_begin, box.row_count, tensor.rows) ||
        !in_bounds(box.column_begin, box.column_count, tensor.columns)) {
      return error_in(tensor, "a rank holds elements outside of it");
    }
  }
  std::sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) { return a.replica < b.replica; });
  for (size_t begin = 0; begin < boxes.size();) {
    size_t end = begin;
    while (end < boxes.size() && boxes[end].replica == boxes[begin].replica) ++end;
    QX_RETURN_IF_ERROR(check_replica(tensor, std::span(boxes).subspan(begin, end - begin)));
    begin = end;
  }
  return ok_status();
}

int64_t matrix_flops(const MuonTensor& tensor) {
  if (tensor.rows == 0 || tensor.columns == 0) return 0;
  return static_cast<int64_t>(kernels::newton_schulz_flops(
      tensor.rows, tensor.columns, static_cast<int>(tensor.num_steps), kernels::NewtonSchulzForm::kAuto));
}

// Ranks that may own matrix `index`: those that hold it whole, or all where none does.
std::vector<int64_t> owner_candidates(const MuonTensor& tensor, int64_t index) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < tensor.boxes.size(); ++rank) {
    const MuonBox& box = tensor.boxes[rank];
    if (holds_matrix(box, index) && covers_whole_matrix(tensor, box)) ranks.push_back(static_cast<int64_t>(rank));
  }
  if (ranks.empty()) {
    ranks.resize(tensor.boxes.size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  return ranks;
}

// Indices of plan.matrices, most expensive first; ties in plan order.
std::vector<size_t> by_falling_cost(const MuonPlan& plan) {
  std::vector<size_t> order(plan.matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-plan.matrices[a].flops, a) < std::pair(-plan.matrices[b].flops, b);
  });
  return order;
}

void assign_owners(MuonPlan& plan, const std::vector<size_t>& order) {
  plan.rank_flops.assign(static_cast<size_t>(plan.options.num_ranks), 0);
  const auto load = [&](int64_t rank) -> int64_t& { return plan.rank_flops[static_cast<size_t>(rank)]; };
  for (const size_t i : order) {
    MuonMatrix& matrix = plan.matrices[i];
    const auto candidates = owner_candidates(plan.tensors[static_cast<size_t>(matrix.tensor)], matrix.index);
    matrix.owner = *std::min_element(candidates.begin(), candidates.end(),
                                     [&](int64_t a, int64_t b) { return load(a) < load(b); });
    load(matrix.owner) += matrix.flops;
  }
}

// Bytes of one bucket on one rank. Messages live at the same time as the whole matrices, and so does the scratch memory
// of the kernel, but never both.
struct RankBytes {
  int64_t whole = 0, forward = 0, reply = 0, scratch = 0;
  int64_t peak() const { return whole + std::max({forward, reply, scratch}); }
};

// The bytes that `matrix` adds, for each rank that it concerns.
std::vector<std::pair<int64_t, RankBytes>> bytes_of(const MuonPlan& plan, const MuonMatrix& matrix) {
  const MuonTensor& tensor = plan.tensors[static_cast<size_t>(matrix.tensor)];
  // One flag a piece, and the gap in front of a matrix that starts on a cache line.
  constexpr int64_t kFlagBytes = kElementBytes, kAlignmentBytes = 64;
  const int64_t source_replica = tensor.boxes[static_cast<size_t>(matrix.owner)].replica;
  RankBytes owner;
  owner.whole = tensor.rows * tensor.columns * kElementBytes + kAlignmentBytes;
  owner.scratch = plan.options.num_threads * kernels::newton_schulz_workspace_bytes(tensor.rows, tensor.columns);
  std::vector<std::pair<int64_t, RankBytes>> result;
  for (size_t rank = 0; rank < tensor.boxes.size(); ++rank) {
    const MuonBox& box = tensor.boxes[rank];
    if (!holds_matrix(box, matrix.index) || static_cast<int64_t>(rank) == matrix.owner) continue;
    const int64_t bytes = box.row_count * box.column_count * kElementBytes + kFlagBytes;
    if (bytes == kFlagBytes) continue;
    RankBytes holder;
    if (box.replica == source_replica) holder.forward = bytes;
    holder.reply = bytes;
    owner.forward += holder.forward;
    owner.reply += holder.reply;
    result.emplace_back(static_cast<int64_t>(rank), holder);
  }
  result.emplace_back(matrix.owner, owner);
  return result;
}

RankBytes sum(const RankBytes& a, const RankBytes& b) {
  return {a.whole + b.whole, a.forward + b.forward, a.reply + b.reply, std::max(a.scratch, b.scratch)};
}

Status fill_buckets(MuonPlan& plan, const std::vector<size_t>& order) {
  const int64_t cap = plan.options.memory_cap_bytes;
  std::vector<RankBytes> used(static_cast<size_t>(plan.options.num_ranks));
  int64_t bucket = -1;
  for (const size_t i : order) {
    MuonMatrix& matrix = plan.matrices[i];
    const auto added = bytes_of(plan, matrix);
    const auto fits = [&](const auto& entry) {
      return cap == 0 || sum(used[static_cast<size_t>(entry.first)], entry.second).peak() <= cap;
    };
    if (bucket < 0 || !std::all_of(added.begin(), added.end(), fits)) {
      std::fill(used.begin(), used.end(), RankBytes{});
      plan.bucket_peak_bytes.push_back(0);
      ++bucket;
    }
    for (const auto& [rank, bytes] : added) {
      RankBytes& total = used[static_cast<size_t>(rank)];
      total = sum(total, bytes);
      if (cap != 0 && total.peak() > cap) {
        return error_in(plan.tensors[static_cast<size_t>(matrix.tensor)],
                        "memory_cap_bytes: one matrix alone needs " + std::to_string(total.peak()) +
                            " bytes, the cap is " + std::to_string(cap));
      }
      plan.bucket_peak_bytes.back() = std::max(plan.bucket_peak_bytes.back(), total.peak());
    }
    matrix.bucket = bucket;
  }
  plan.num_buckets = bucket + 1;
  return ok_status();
}

class PlanHash {
 public:
  void add(int64_t value) {
    char bytes[sizeof(value)];
    for (size_t i = 0; i < sizeof(value); ++i) bytes[i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
    hash_ = fnv1a({bytes, sizeof(bytes)}, hash_);
  }
  void add(const std::string& text) {
    add(static_cast<int64_t>(text.size()));
    hash_ = fnv1a(text, hash_);
  }
  void add(const MuonTensor& tensor) {
    add(tensor.name);
    for (const int64_t value : {tensor.num_matrices, tensor.rows, tensor.columns, tensor.num_steps, tensor.settings}) {
      add(value);
    }
    for (const MuonBox& box : tensor.boxes) {
      for (const int64_t value : {box.matrix_begin, box.matrix_count, box.row_begin, box.row_count, box.column_begin,
                                  box.column_count, box.replica}) {
        add(value);
      }
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = kEmptyFnv1a;
};

}  // namespace

double MuonPlan::imbalance() const {
  const int64_t total = std::accumulate(rank_flops.begin(), rank_flops.end(), int64_t{0});
  if (total == 0) return 1.0;
  const int64_t largest = *std::max_element(rank_flops.begin(), rank_flops.end());
  return static_cast<double>(largest) * static_cast<double>(rank_flops.size()) / static_cast<double>(total);
}

uint64_t MuonPlan::hash() const {
  PlanHash hash;
  for (const int64_t value : {options.num_ranks, options.memory_cap_bytes, options.num_threads}) hash.add(value);
  for (const MuonTensor& tensor : tensors) hash.add(tensor);
  for (const MuonMatrix& matrix : matrices) {
    hash.add(matrix.owner);
    hash.add(matrix.bucket);
  }
  return hash.value();
}

uint64_t MuonPlan::tensor_hash(int64_t tensor) const {
  PlanHash hash;
  hash.add(tensors[static_cast<size_t>(tensor)]);
  return hash.value();
}

Result<MuonPlan> make_muon_plan(std::vector<MuonTensor> tensors, const MuonPlanOptions& options) {
  if (options.num_ranks < 1) {
    return invalid_argument("num_ranks: must be at least 1, got " + std::to_string(options.num_ranks));
  }
  if (options.memory_cap_bytes < 0) {
    return invalid_argument("memory_cap_bytes: must not be negative, got " + std::to_string(options.memory_cap_bytes));
  }
  if (options.num_threads < 1) {
    return invalid_argument("num_threads: must be at least 1, got " + std::to_string(options.num_threads));
  }
  MuonPlan plan;
  plan.options = options;
  plan.tensors = std::move(tensors);
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const MuonTensor& tensor = plan.tensors[t];
    QX_RETURN_IF_ERROR(check_tensor(tensor, options));
    if (tensor.rows == 0 || tensor.columns == 0) continue;
    for (int64_t index = 0; index < tensor.num_matrices; ++index) {
      const auto form =
          kernels::newton_schulz_resolved_form(tensor.rows, tensor.columns, kernels::NewtonSchulzForm::kAuto);
      plan.matrices.push_back({static_cast<int64_t>(t), index, 0, 0, matrix_flops(tensor),
                               form == kernels::NewtonSchulzForm::kDirect ? 0 : 1});
    }
  }
  const std::vector<size_t> order = by_falling_cost(plan);
  assign_owners(plan, order);
  QX_RETURN_IF_ERROR(fill_buckets(plan, order));
  return plan;
}

}  // namespace qx::planning
