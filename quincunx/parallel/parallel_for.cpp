#include "quincunx/parallel/parallel_for.h"

namespace qx {

void parallel_for(int64_t begin, int64_t end, int64_t, RangeFunction body) {
  if (begin < end) body(begin, end);
}
int num_threads() { return 1; }
void set_num_threads(int) {}
bool in_parallel_region() { return false; }
void set_parallel_backend(ParallelBackend) {}

}  // namespace qx
