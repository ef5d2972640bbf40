#include "quincunx/lite/plan/arena_layout.h"

#include <algorithm>
#include <numeric>

#include "quincunx/tensor/storage.h"

namespace qx::lite {
namespace {

int64_t aligned(int64_t size) {
  return (size + kStorageAlignmentBytes - 1) / kStorageAlignmentBytes * kStorageAlignmentBytes;
}

bool overlap(const BufferLifetime& left, const BufferLifetime& right) {
  return left.first <= right.last && right.first <= left.last;
}

}  // namespace

Result<ArenaLayout> lay_out_arena(const std::vector<BufferLifetime>& buffers) {
  constexpr int64_t kMaxBytes = int64_t{1} << 60;
  int64_t total = 0;
  for (const BufferLifetime& buffer : buffers) {
    if (buffer.size_bytes > kMaxBytes || __builtin_add_overflow(total, aligned(buffer.size_bytes), &total)) {
      return resource_exhausted("the intermediate results take more than 2^60 bytes");
    }
  }
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return buffers[left].size_bytes != buffers[right].size_bytes ? buffers[left].size_bytes > buffers[right].size_bytes
                                                                 : left < right;
  });
  ArenaLayout layout;
  layout.offsets.assign(buffers.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (const size_t index : order) {
    const int64_t size = aligned(buffers[index].size_bytes);
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (!overlap(buffers[index], buffers[other])) continue;
      if (layout.offsets[other] >= offset + size) break;
      offset = std::max(offset, layout.offsets[other] + aligned(buffers[other].size_bytes));
    }
    layout.offsets[index] = offset;
    layout.size_bytes = std::max(layout.size_bytes, offset + size);
    const auto place = std::upper_bound(placed.begin(), placed.end(), offset,
                                        [&](int64_t value, size_t other) { return value < layout.offsets[other]; });
    placed.insert(place, index);
  }
  return layout;
}

}  // namespace qx::lite
