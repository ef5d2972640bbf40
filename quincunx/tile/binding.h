// A program meets tensors: the sizes of its axes, and how far each tensor moves along them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"
#include "quincunx/tile/program.h"

namespace qx::tile {

// A number for each axis, in place: a small region takes no longer than an allocation.
class AxisNumbers {
 public:
  AxisNumbers() = default;
  AxisNumbers(size_t count, int64_t number) : count_(count) { numbers_.fill(number); }
  size_t size() const { return count_; }
  int64_t& operator[](size_t axis) { return numbers_[axis]; }
  int64_t operator[](size_t axis) const { return numbers_[axis]; }
  int64_t back() const { return numbers_[count_ - 1]; }
  void erase(size_t axis) {
    for (--count_; axis < count_; ++axis) numbers_[axis] = numbers_[axis + 1];
  }

 private:
  size_t count_ = 0;
  std::array<int64_t, Program::kMaxAxes> numbers_ = {};
};

struct BoundTensor {
  DType dtype = DType::kFloat32;
  char* data = nullptr;
  // Elements along each axis; 0 where the tensor repeats.
  AxisNumbers strides;
};

struct Binding {
  // The last one is the row; a program without axes has one row of one element.
  AxisNumbers sizes;
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
