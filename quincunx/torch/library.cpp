// Declares the operator library; each folder below registers its operators in it with STABLE_TORCH_LIBRARY_FRAGMENT.
#include <torch/csrc/stable/library.h>

#include "quincunx/torch/parallel_hook.h"

STABLE_TORCH_LIBRARY(quincunx, library) {
  static_cast<void>(library);
  qx::torch_bridge::install_parallel_hook();
}
