// Runs a tile program on tensors.
#pragma once

#include <span>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"
#include "quincunx/tile/program.h"

namespace qx::tile {

// outputs = program(inputs). The sizes of the axes are those of the tensors; any strides, but an output has no zero
// stride over a size other than 1 and overlaps no other tensor. Rows, or blocks of them where nothing is reduced, are
// spread over the threads; the bits do not depend on how many. Sums are taken in f64. INVALID_ARGUMENT names the tensor
// that does not fit, or the instruction that is wrong. Thread-safe.
Status run(const Program& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs);

}  // namespace qx::tile
