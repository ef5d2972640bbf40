// TensorView: somebody else's memory with a shape. Shape, strides, dtype and device stand in a DLPack DLTensor, so that
// PyTorch, NumPy and ONNX Runtime can hand tensors over without a copy.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"

namespace qx {

// DLPack 0.6 (Debian 12) lacks the code that newer producers use for bool.
inline constexpr uint8_t kDLBoolCode = 6;

// The 8-bit floats have no code in DLPack 0.6 either: they become opaque bytes, which no reader takes for a number.
DLDataType dlpack_dtype(DType dtype);
// TYPE_ERROR for what DType does not have and for opaque bytes: a tensor of 8-bit floats has to be passed as uint8.
Result<DType> dtype_from_dlpack(DLDataType dtype);

// A copyable, non-owning view. Strides count elements and may be zero or negative. At most kMaxDims dimensions.
class TensorView {
 public:
  static constexpr int kMaxDims = 8;

  TensorView() = default;
  // Contiguous, row-major, on the CPU.
  static Result<TensorView> contiguous(void* data, DType dtype, std::span<const int64_t> shape);
  static Result<TensorView> strided(void* data, DType dtype, std::span<const int64_t> shape,
                                    std::span<const int64_t> strides);
  // Checks rank, sizes, strides, dtype and overflow; byte_offset is folded into data().
  static Result<TensorView> from_dlpack(const DLTensor& tensor);

  // The DLTensor points into this view: it lives as long as the view stays where it is.
  DLTensor to_dlpack() const;

  int num_dims() const { return num_dims_; }
  // Negative dim counts from the end.
  int64_t size(int dim) const { return shape_[dim < 0 ? dim + num_dims_ : dim]; }
  int64_t stride(int dim) const { return strides_[dim < 0 ? dim + num_dims_ : dim]; }
  std::span<const int64_t> shape() const { return {shape_, static_cast<size_t>(num_dims_)}; }
  std::span<const int64_t> strides() const { return {strides_, static_cast<size_t>(num_dims_)}; }
  DType dtype() const { return dtype_; }
  DLDevice device() const { return device_; }
  int64_t num_elements() const;
  int64_t size_bytes() const { return num_elements() * dtype_size_bytes(dtype_); }
  bool is_contiguous() const;
  // True if each stride steps over all that the smaller ones reach: no two elements share memory then. The few layouts
  // that interleave without sharing count as shared.
  bool has_distinct_elements() const;

  void* data() const { return data_; }
  template <typename T>
  T* data_as() const {
    return static_cast<T*>(data_);
  }

  // Views of the same memory; a negative dim counts from the end.
  // Indices begin, begin + step, ... below end of `dim`: 0 <= begin <= end <= size(dim), step > 0.
  Result<TensorView> slice(int dim, int64_t begin, int64_t end, int64_t step = 1) const;
  // Index `index` of `dim`, which disappears.
  Result<TensorView> select(int dim, int64_t index) const;
  Result<TensorView> transpose(int first_dim, int second_dim) const;
  // The same elements in row-major order; the view must be contiguous and the number of elements the same.
  Result<TensorView> reshape(std::span<const int64_t> shape) const;

  // "float32[2, 3]": for error messages.
  std::string to_string() const;

 private:
  Result<int> checked_dim(const char* name, int dim) const;

  void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  DLDevice device_{kDLCPU, 0};
  int num_dims_ = 0;
  int64_t shape_[kMaxDims] = {};
  int64_t strides_[kMaxDims] = {};
};

}  // namespace qx
