// What the entries of the f32 product check, and the way from checked views to the kernel.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// f32, on the CPU, two dimensions.
Status check_matrix(std::string_view name, const TensorView& view);

// a[M, inner], output[M, columns] with elements of its own, apart from a.
Status check_product(const TensorView& a, int64_t inner, int64_t columns, const TensorView& output);

// bias, residual and row scale of the right shapes and apart from `output`.
Status check_options(const GemmOptions& options, const TensorView& output);

// An f32 [columns] that is apart from `output`.
Status check_bias(std::string_view name, const TensorView& bias, int64_t columns, const TensorView& output);

// The panels of a packed weight; `gated`: those of gate and up in turn.
struct Panels {
  const float* data = nullptr;
  int64_t inner = 0;
  int64_t columns = 0;  // of the output
  bool gated = false;
  const TensorView* up_bias = nullptr;
};

// output = the product with its epilogue. Everything has been checked. Throws std::bad_alloc.
void multiply_views(const TensorView& a, const Panels& b, const TensorView& output, const GemmOptions& options);

// Calls `body`, which returns nothing; a Status instead of std::bad_alloc.
template <typename Body>
Status with_scratch_memory(const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    return resource_exhausted("scratch memory: the system has not enough of it for these sizes");
  }
  return ok_status();
}

}  // namespace qx::kernels
