// One pool of threads a process. Inside PyTorch the work runs on PyTorch's intra-op pool instead, through a hook.
#pragma once

#include <cstdint>
#include <functional>

namespace qx {

// A non-owning reference to a callable void(int64_t begin, int64_t end): no allocation on the hot path.
class RangeFunction {
 public:
  template <typename F>
  RangeFunction(const F& f)  // NOLINT(google-explicit-constructor)
      : object_(&f), call_([](const void* object, int64_t begin, int64_t end) {
          (*static_cast<const F*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls body(begin_i, end_i) over disjoint ranges that cover [begin, end), each of at least `grain` indices but the
// last. Ranges depend on begin, end, grain and the number of threads only; a body must give the same bits however the
// range is cut. Nested calls run inline. An exception thrown by a body is rethrown in the caller after all have ended.
// Thread-safe.
void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction body);

// Threads that a parallel_for may use, the caller included. At least 1.
int num_threads();
// 0 restores the default: QX_NUM_THREADS, else the number of CPUs in the affinity mask.
void set_num_threads(int count);
// True inside a parallel_for body.
bool in_parallel_region();

// Replaces the pool: `run` must behave as parallel_for, `threads` as num_threads. Null pointers restore our own.
struct ParallelBackend {
  void (*run)(int64_t begin, int64_t end, int64_t grain, RangeFunction body) = nullptr;
  int (*threads)() = nullptr;
};
void set_parallel_backend(ParallelBackend backend);

}  // namespace qx
