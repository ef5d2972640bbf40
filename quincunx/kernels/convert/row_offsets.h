// A strided tensor seen as rows of its last dimension.
#pragma once

#include <cstdint>

#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Row r of a view of shape [..., N] starts at data + offset(r) elements and steps by row_stride(). A scalar is one row
// of one element.
class RowOffsets {
 public:
  // With `flatten` a contiguous view is one row of all of its elements.
  explicit RowOffsets(const TensorView& view, bool flatten = false) {
    if (flatten && view.is_contiguous()) {
      row_length_ = view.num_elements();
      return;
    }
    if (view.num_dims() == 0) return;
    row_length_ = view.size(-1);
    row_stride_ = view.size(-1) == 1 ? 1 : view.stride(-1);
    for (int i = 0; i + 1 < view.num_dims(); ++i) {
      const int64_t size = view.size(i);
      num_rows_ *= size;
      if (size == 1) continue;
      // A dimension that continues the previous one is folded into it: fewer divisions in offset().
      if (num_dims_ > 0 && strides_[num_dims_ - 1] == size * view.stride(i)) {
        shape_[num_dims_ - 1] *= size;
        strides_[num_dims_ - 1] = view.stride(i);
      } else {
        shape_[num_dims_] = size;
        strides_[num_dims_++] = view.stride(i);
      }
    }
  }

  int64_t num_rows() const { return num_rows_; }
  int64_t row_length() const { return row_length_; }
  int64_t row_stride() const { return row_stride_; }

  int64_t offset(int64_t row) const {
    int64_t result = 0;
    for (int i = num_dims_ - 1; i > 0; --i) {
      result += row % shape_[i] * strides_[i];
      row /= shape_[i];
    }
    return num_dims_ > 0 ? result + row * strides_[0] : 0;
  }

 private:
  int64_t num_rows_ = 1;
  int64_t row_length_ = 1;
  int64_t row_stride_ = 1;
  int num_dims_ = 0;
  int64_t shape_[TensorView::kMaxDims] = {};
  int64_t strides_[TensorView::kMaxDims] = {};
};

}  // namespace qx::kernels
