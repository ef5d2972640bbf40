// Ways for operators whose kernels read f32 to take other floating-point types.
#pragma once

#include <memory>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::lite {

// A tensor as contiguous or strided f32: the view itself where it is f32 already, else a converted copy.
class FloatInput {
 public:
  static Result<FloatInput> create(const TensorView& view);
  const TensorView& view() const { return view_; }

 private:
  std::unique_ptr<float[]> copy_;
  TensorView view_;
};

// Where a kernel writes f32 for `target`: the target itself where it is f32, else a buffer that store() converts.
class FloatOutput {
 public:
  static Result<FloatOutput> create(const TensorView& target);
  const TensorView& view() const { return view_; }
  Status store() const;

 private:
  std::unique_ptr<float[]> buffer_;
  TensorView view_;
  TensorView target_;
};

}  // namespace qx::lite
