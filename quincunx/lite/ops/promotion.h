// The dtype in which operands of different dtypes meet, as PyTorch's result_type has it.
#pragma once

#include "quincunx/lite/ops/call.h"

namespace qx::lite {

// Collects operands one by one. Tensors with dimensions decide; tensors without, then numbers, change the result only
// where they are of a higher category (bool < integers < floating point).
class Promotion {
 public:
  void add(const TensorView& tensor);
  void add(const Number& number);
  DType result() const;

 private:
  static DType common(DType left, DType right);

  bool has_[3] = {};
  DType best_[3] = {};  // tensors with dimensions, tensors without, numbers
};

// Of the arguments `first` ... `last`, tensors or numbers.
DType promoted_dtype(const Call& call, size_t first, size_t last);

}  // namespace qx::lite
