#include "quincunx/kernels/gemm/workspace.h"

#include <array>
#include <cstddef>
#include <new>
#include <utility>

namespace qx::kernels {
namespace {

struct Buffer {
  float* data = nullptr;
  int64_t capacity = 0;
};

constexpr std::align_val_t kAlignment{64};

Buffer allocate(int64_t size) {
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(float);
  return {static_cast<float*>(::operator new(bytes, kAlignment)), size};
}

void release(Buffer buffer) { ::operator delete(buffer.data, kAlignment); }

struct Kept {
  std::array<Buffer, Workspace::kKeptBuffers> buffers;
  ~Kept() {
    for (const Buffer& buffer : buffers) release(buffer);
  }
};
thread_local Kept kept;

}  // namespace

Workspace::Workspace(int64_t size) {
  Buffer* best = nullptr;
  for (Buffer& buffer : kept.buffers) {
    if (buffer.capacity >= size && (best == nullptr || buffer.capacity < best->capacity)) best = &buffer;
  }
  const Buffer leased = best != nullptr ? std::exchange(*best, Buffer{}) : allocate(size);
  data_ = leased.data;
  capacity_ = leased.capacity;
}

Workspace::~Workspace() {
  Buffer returned{data_, capacity_};
  for (Buffer& buffer : kept.buffers) {
    // The smaller of the two moves on, until the smallest of all is left.
    if (returned.capacity <= kKeptFloats && returned.capacity > buffer.capacity) std::swap(returned, buffer);
  }
  release(returned);
}

}  // namespace qx::kernels
