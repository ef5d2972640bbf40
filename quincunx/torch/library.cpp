// Declares the operator library; each folder below registers its operators in it with STABLE_TORCH_LIBRARY_FRAGMENT.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(quincunx, library) { (void)library; }
