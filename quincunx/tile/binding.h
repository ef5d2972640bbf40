// A program meets tensors: the sizes of its axes, and how far each tensor moves along them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"
#include "quincunx/tile/program.h"

namespace qx::tile {

struct BoundTensor {
  DType dtype = DType::kFloat32;
  char* data = nullptr;
  // Elements along each axis; 0 where the tensor repeats.
  std::vector<int64_t> strides;
};

struct Binding {
  // The last one is the row; a program without axes has one row of one element.
  std::vector<int64_t> sizes;
  std::vector<BoundTensor> inputs;
  std::vector<BoundTensor> outputs;

  int64_t row_length() const { return sizes.back(); }
  int64_t num_rows() const;
};

// The axes follow the outputs' memory, whatever order the program gives them in; neighbouring ones that every tensor
// walks through as one are one afterwards: longer rows, fewer of them.
// INVALID_ARGUMENT names the input or output that does not fit.
Result<Binding> bind(const Program& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs);

}  // namespace qx::tile
