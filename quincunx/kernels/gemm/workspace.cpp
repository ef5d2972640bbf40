#include "quincunx/kernels/gemm/workspace.h"

#include <cstddef>
#include <new>
#include <utility>

namespace qx::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

void release(float* data) { ::operator delete(data, kAlignment); }

struct Kept {
  float* data = nullptr;
  int64_t capacity = 0;
  ~Kept() { release(data); }
};
thread_local Kept kept;

}  // namespace

Workspace::Workspace(int64_t size) {
  if (kept.capacity >= size) {
    data_ = std::exchange(kept.data, nullptr);
    capacity_ = std::exchange(kept.capacity, 0);
    return;
  }
  data_ = static_cast<float*>(::operator new(static_cast<std::size_t>(size) * sizeof(float), kAlignment));
  capacity_ = size;
}

Workspace::~Workspace() {
  if (capacity_ > kKeptFloats || capacity_ <= kept.capacity) {
    release(data_);
    return;
  }
  release(std::exchange(kept.data, data_));
  kept.capacity = capacity_;
}

}  // namespace qx::kernels
