// Scratch memory that a thread keeps between calls.
#pragma once

#include <cstdint>

namespace qx::kernels {

// Leases at least `size` floats, 64-byte aligned and not initialised, until the end of the scope. Leases may nest, as
// kernels do: each has memory of its own. A thread keeps its largest kKeptBuffers buffers of at most kKeptFloats floats
// for later leases, because fresh pages cost more than many kernels.
class Workspace {
 public:
  static constexpr int kKeptBuffers = 3;
  static constexpr int64_t kKeptFloats = int64_t{1} << 24;  // 64 MiB

  explicit Workspace(int64_t size);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  float* data() const { return data_; }

 private:
  float* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace qx::kernels
