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
      : object_(&f),
        call_([](const void* object, int64_t begin, int64_t end) { (*static_cast<const F*>(object))(begin, end); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls body(begin_i, end_i) over disjoint ranges that cover [begin, end), each of at least `grain` indices but the
// last; a grain below 1 counts as 1. The ranges depend on begin, end, grain and the number of threads only and are
// handed out in order, one after another, to whichever thread is free. A body must give the same bits however the range
// is cut. Nested calls run inline. If bodies throw, ranges that have not started are dropped and the exception of the
// lowest range is rethrown in the caller after all have ended. Thread-safe, callers of several threads share the
// workers. A child of fork may call it too, but not return from a body in which it was forked.
void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction body);

// Threads that a parallel_for may use, the caller included. At least 1.
int num_threads();
// 0 restores the default: QX_NUM_THREADS, else the CPUs that the affinity mask and the cgroup's quota allow. A count
// below 0 or above 1024 is reported on stderr and changes nothing. Has no effect while a backend is set.
void set_num_threads(int count);
// True inside a parallel_for body.
bool in_parallel_region();

// Replaces the pool. `run` calls body over ranges that cover [begin, end), at best each on a thread of its own, and
// returns after all have ended; the body it is given does not throw. `threads` says how many threads it may use at this
// moment. Both are called from any thread. Null pointers restore our own pool.
struct ParallelBackend {
  void (*run)(int64_t begin, int64_t end, int64_t grain, RangeFunction body) = nullptr;
  int (*threads)() = nullptr;
};
void set_parallel_backend(ParallelBackend backend);

}  // namespace qx
