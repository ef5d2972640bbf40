#include "quincunx/tensor/arena.h"

#include <algorithm>
#include <string>

namespace qx {
namespace {

// Small enough to be cheap for a short computation, large enough that growth is rare.
constexpr int64_t kFirstPieceBytes = 64 * 1024;

}  // namespace

Arena::Arena(int64_t budget_bytes) : budget_bytes_(budget_bytes) {
  QX_CHECK_MESSAGE(budget_bytes >= 0, "budget_bytes must not be negative");
}

Result<std::byte*> Arena::allocate(int64_t size_bytes) {
  if (size_bytes < 0) return invalid_argument("size_bytes: must not be negative, got " + std::to_string(size_bytes));
  // At least one unit, so that blocks of no bytes have addresses of their own.
  const int64_t whole_units = size_bytes / kStorageAlignmentBytes;
  const int64_t units = std::max<int64_t>(1, whole_units + (size_bytes % kStorageAlignmentBytes > 0));
  if (units > (budget_bytes_ - used_bytes_) / kStorageAlignmentBytes) {
    return resource_exhausted("size_bytes: " + std::to_string(size_bytes) + " bytes do not fit, " +
                              std::to_string(used_bytes_) + " of the arena's budget of " +
                              std::to_string(budget_bytes_) + " are in use");
  }
  const int64_t rounded = units * kStorageAlignmentBytes;
  if (pieces_.empty() || pieces_.back()->size_bytes() - piece_used_bytes_ < rounded) {
    QX_RETURN_IF_ERROR(add_piece(rounded));
  }
  std::byte* block = pieces_.back()->mutable_data() + piece_used_bytes_;
  piece_used_bytes_ += rounded;
  used_bytes_ += rounded;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return block;
}

Result<TensorView> Arena::allocate_tensor(DType dtype, std::span<const int64_t> shape) {
  // Any address will do to check the shape and to count its bytes.
  QX_ASSIGN_OR_RETURN(const TensorView measured, TensorView::contiguous(this, dtype, shape));
  QX_ASSIGN_OR_RETURN(std::byte* const block, allocate(measured.size_bytes()));
  return TensorView::contiguous(block, dtype, shape);
}

void Arena::reset() {
  used_bytes_ = 0;
  piece_used_bytes_ = 0;
  if (pieces_.size() < 2) return;
  pieces_.clear();
  // Where the system refuses, the pieces come one by one again.
  static_cast<void>(add_piece(peak_bytes_));
}

Status Arena::add_piece(int64_t least_bytes) {
  const int64_t grown = pieces_.empty() ? kFirstPieceBytes : 2 * pieces_.back()->size_bytes();
  const int64_t wanted = std::max(least_bytes, std::min(grown, budget_bytes_ - used_bytes_));
  QX_ASSIGN_OR_RETURN(std::shared_ptr<Storage> piece, Storage::allocate(wanted));
  pieces_.push_back(std::move(piece));
  piece_used_bytes_ = 0;
  return ok_status();
}

}  // namespace qx
