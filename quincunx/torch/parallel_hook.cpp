#include "quincunx/torch/parallel_hook.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cstdint>

#include "quincunx/parallel/parallel_for.h"

namespace qx::torch_bridge {
namespace {

// Exceptions of a body never get here: parallel_for carries them past its backend.
void run_on_torch(int64_t begin, int64_t end, int64_t grain, RangeFunction body) {
  torch::stable::parallel_for(begin, end, grain, body);
}

int torch_threads() { return static_cast<int>(torch::stable::get_num_threads()); }

int64_t num_threads_operator() { return num_threads(); }

}  // namespace

void install_parallel_hook() { set_parallel_backend({&run_on_torch, &torch_threads}); }

}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) { library.def("num_threads() -> int"); }

STABLE_TORCH_LIBRARY_IMPL(quincunx, CompositeExplicitAutograd, library) {
  library.impl("num_threads", TORCH_BOX(&qx::torch_bridge::num_threads_operator));
}
