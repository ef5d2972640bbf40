// The rows of a strided tensor, one after another, as dense memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Rows of the last dimension of a view that is repeated to `shape` where its size is 1. A default one does not exist.
class DenseRows {
 public:
  DenseRows() = default;
  DenseRows(const TensorView& view, std::span<const int64_t> shape)
      : data_(view.data_as<char>()), dtype_(view.dtype()) {
    int64_t strides[TensorView::kMaxDims] = {};
    for (size_t i = 0; i < shape.size(); ++i) {
      const int dim = static_cast<int>(i);
      strides[i] = view.size(dim) == 1 && shape[i] != 1 ? 0 : view.stride(dim);
    }
    offsets_.emplace(TensorView::strided(view.data(), dtype_, shape, {strides, shape.size()}).value());
  }

  bool exists() const { return offsets_.has_value(); }
  bool is_dense() const { return offsets_->row_stride() == 1; }
  char* at(int64_t row) const { return data_ + offsets_->offset(row) * dtype_size_bytes(dtype_); }
  void load_f32(int64_t row, float* to) const {
    load_row_as_f32(dtype_, at(row), offsets_->row_stride(), offsets_->row_length(), to);
  }
  // The row's own memory where it is dense, else `spare`, with the row's elements if it is to be read.
  char* dense(int64_t row, char* spare, bool read) const {
    if (is_dense()) return at(row);
    if (read) copy_elements(at(row), offsets_->row_stride(), spare, 1);
    return spare;
  }
  // What was written to `values`, unless that is the row's own memory.
  void put_back(int64_t row, const char* values) const {
    if (!is_dense()) copy_elements(values, 1, at(row), offsets_->row_stride());
  }

 private:
  void copy_elements(const char* from, int64_t from_stride, char* to, int64_t to_stride) const {
    const int64_t bytes = dtype_size_bytes(dtype_);
    for (int64_t i = 0; i < offsets_->row_length(); ++i) {
      std::memcpy(to + i * to_stride * bytes, from + i * from_stride * bytes, static_cast<size_t>(bytes));
    }
  }

  char* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  std::optional<RowOffsets> offsets_;
};

}  // namespace qx::kernels
