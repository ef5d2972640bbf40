#include "quincunx/tensor/tensor_view.h"

#include <algorithm>
#include <array>
#include <utility>

namespace qx {
namespace {

Status check_shape(std::span<const int64_t> shape, DType dtype) {
  if (shape.size() > TensorView::kMaxDims) {
    return invalid_argument("shape: at most " + std::to_string(TensorView::kMaxDims) +
                            " dimensions are supported, got " + std::to_string(shape.size()));
  }
  int64_t bytes = dtype_size_bytes(dtype);
  bool empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      return invalid_argument("shape[" + std::to_string(i) + "]: must not be negative, got " +
                              std::to_string(shape[i]));
    }
    empty = empty || shape[i] == 0;
  }
  for (const int64_t size : shape) {
    if (!empty && __builtin_mul_overflow(bytes, size, &bytes)) {
      return invalid_argument("shape: the size in bytes overflows 64 bits");
    }
  }
  return ok_status();
}

}  // namespace

DLDataType dlpack_dtype(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * dtype_size_bytes(dtype));
  switch (dtype) {
    case DType::kBool: return {kDLBoolCode, 8, 1};
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return {kDLInt, bits, 1};
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64: return {kDLUInt, bits, 1};
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return {kDLFloat, bits, 1};
    case DType::kBFloat16: return {kDLBfloat, 16, 1};
    case DType::kComplex64:
    case DType::kComplex128: return {kDLComplex, bits, 1};
    default: return {kDLOpaqueHandle, bits, 1};
  }
}

Result<DType> dtype_from_dlpack(DLDataType dtype) {
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto candidate = static_cast<DType>(i);
    const DLDataType known = dlpack_dtype(candidate);
    if (known.code != kDLOpaqueHandle && known.code == dtype.code && known.bits == dtype.bits && dtype.lanes == 1) {
      return candidate;
    }
  }
  return type_error("dtype: unsupported DLPack type (code " + std::to_string(dtype.code) + ", " +
                    std::to_string(dtype.bits) + " bits, " + std::to_string(dtype.lanes) + " lanes)");
}

Result<TensorView> TensorView::contiguous(void* data, DType dtype, std::span<const int64_t> shape) {
  QX_RETURN_IF_ERROR(check_shape(shape, dtype));
  int64_t strides[kMaxDims];
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // Only an empty tensor can have sizes whose product overflows; its strides are never used.
    if (shape[i] != 0 && __builtin_mul_overflow(stride, shape[i], &stride)) stride = 1;
  }
  return strided(data, dtype, shape, {strides, shape.size()});
}

Result<TensorView> TensorView::strided(void* data, DType dtype, std::span<const int64_t> shape,
                                       std::span<const int64_t> strides) {
  QX_RETURN_IF_ERROR(check_shape(shape, dtype));
  if (strides.size() != shape.size()) {
    return invalid_argument("strides: expected one for each of the " + std::to_string(shape.size()) +
                            " dimensions, got " + std::to_string(strides.size()));
  }
  TensorView view;
  view.data_ = data;
  view.dtype_ = dtype;
  view.num_dims_ = static_cast<int>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    view.shape_[i] = shape[i];
    view.strides_[i] = strides[i];
  }
  if (data == nullptr && view.num_elements() != 0) {
    return invalid_argument("data: null pointer for " + view.to_string());
  }
  return view;
}

Result<TensorView> TensorView::from_dlpack(const DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxDims) {
    return invalid_argument("ndim: expected 0 to " + std::to_string(kMaxDims) + ", got " + std::to_string(tensor.ndim));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    return invalid_argument("shape: null pointer for " + std::to_string(tensor.ndim) + " dimensions");
  }
  QX_ASSIGN_OR_RETURN(const DType dtype, dtype_from_dlpack(tensor.dtype));
  const std::span<const int64_t> shape(tensor.shape, static_cast<size_t>(tensor.ndim));
  void* data = tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
  auto view = tensor.strides == nullptr
                  ? contiguous(data, dtype, shape)
                  : strided(data, dtype, shape, {tensor.strides, static_cast<size_t>(tensor.ndim)});
  if (view.ok()) view->device_ = tensor.device;
  return view;
}

DLTensor TensorView::to_dlpack() const {
  return {.data = data_,
          .device = device_,
          .ndim = num_dims_,
          .dtype = dlpack_dtype(dtype_),
          .shape = const_cast<int64_t*>(shape_),
          .strides = const_cast<int64_t*>(strides_),
          .byte_offset = 0};
}

int64_t TensorView::num_elements() const {
  if (std::find(shape_, shape_ + num_dims_, 0) != shape_ + num_dims_) return 0;
  int64_t count = 1;
  for (int i = 0; i < num_dims_; ++i) count *= shape_[i];
  return count;
}

bool TensorView::is_contiguous() const {
  if (num_elements() == 0) return true;
  int64_t expected = 1;
  for (int i = num_dims_ - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

bool TensorView::has_distinct_elements() const {
  if (num_elements() == 0) return true;
  std::array<std::pair<uint64_t, uint64_t>, kMaxDims> steps;  // |stride| and size - 1
  size_t count = 0;
  for (int i = 0; i < num_dims_; ++i) {
    const auto stride = static_cast<uint64_t>(strides_[i]);
    if (shape_[i] > 1) steps[count++] = {strides_[i] < 0 ? 0 - stride : stride, static_cast<uint64_t>(shape_[i]) - 1};
  }
  // Not std::sort: g++ 12.2 at -O2 takes its threshold of 16 for an index and warns of the array's bounds.
  std::make_heap(steps.begin(), steps.begin() + count);
  std::sort_heap(steps.begin(), steps.begin() + count);
  uint64_t extent = 0;  // of the dimensions inside
  for (size_t i = 0; i < count; ++i) {
    uint64_t reach = 0;
    if (steps[i].first <= extent || __builtin_mul_overflow(steps[i].first, steps[i].second, &reach) ||
        __builtin_add_overflow(extent, reach, &extent)) {
      return false;
    }
  }
  return true;
}

Result<int> TensorView::checked_dim(const char* name, int dim) const {
  if (dim < -num_dims_ || dim >= num_dims_) {
    return invalid_argument(std::string(name) + ": expected " + std::to_string(-num_dims_) + " to " +
                            std::to_string(num_dims_ - 1) + " for " + to_string() + ", got " + std::to_string(dim));
  }
  return dim < 0 ? dim + num_dims_ : dim;
}

Result<TensorView> TensorView::slice(int dim, int64_t begin, int64_t end, int64_t step) const {
  QX_ASSIGN_OR_RETURN(const int at, checked_dim("dim", dim));
  if (begin < 0 || begin > end || end > shape_[at]) {
    return invalid_argument("begin, end: expected 0 <= begin <= end <= " + std::to_string(shape_[at]) + ", got " +
                            std::to_string(begin) + ", " + std::to_string(end));
  }
  if (step < 1) return invalid_argument("step: must be positive, got " + std::to_string(step));
  TensorView view = *this;
  view.shape_[at] = (end - begin) / step + ((end - begin) % step > 0);
  // No address is computed from the strides of an empty tensor, nor from that of a dimension of one element.
  if (view.num_elements() == 0) return view;
  int64_t offset = 0;
  const bool overflows = (view.shape_[at] > 1 && __builtin_mul_overflow(strides_[at], step, &view.strides_[at])) ||
                         __builtin_mul_overflow(begin, strides_[at], &offset) ||
                         __builtin_mul_overflow(offset, dtype_size_bytes(dtype_), &offset);
  if (overflows) {
    return invalid_argument("dim: the stride " + std::to_string(strides_[at]) + " of dimension " + std::to_string(at) +
                            " of " + to_string() + " reaches beyond 64 bits");
  }
  view.data_ = static_cast<char*>(data_) + offset;
  return view;
}

Result<TensorView> TensorView::select(int dim, int64_t index) const {
  QX_ASSIGN_OR_RETURN(const int at, checked_dim("dim", dim));
  if (index < 0 || index >= shape_[at]) {
    return invalid_argument("index: expected 0 to " + std::to_string(shape_[at] - 1) + ", got " +
                            std::to_string(index));
  }
  QX_ASSIGN_OR_RETURN(TensorView view, slice(at, index, index + 1));
  for (int i = at; i + 1 < num_dims_; ++i) {
    view.shape_[i] = shape_[i + 1];
    view.strides_[i] = strides_[i + 1];
  }
  --view.num_dims_;
  return view;
}

Result<TensorView> TensorView::transpose(int first_dim, int second_dim) const {
  QX_ASSIGN_OR_RETURN(const int first, checked_dim("first_dim", first_dim));
  QX_ASSIGN_OR_RETURN(const int second, checked_dim("second_dim", second_dim));
  TensorView view = *this;
  std::swap(view.shape_[first], view.shape_[second]);
  std::swap(view.strides_[first], view.strides_[second]);
  return view;
}

Result<TensorView> TensorView::reshape(std::span<const int64_t> shape) const {
  if (!is_contiguous()) {
    return failed_precondition("reshape: " + to_string() + " is not contiguous; its elements would have to be copied");
  }
  QX_ASSIGN_OR_RETURN(TensorView view, contiguous(data_, dtype_, shape));
  if (view.num_elements() != num_elements()) {
    return invalid_argument("shape: expected the " + std::to_string(num_elements()) + " elements of " + to_string() +
                            ", got " + view.to_string());
  }
  view.device_ = device_;
  return view;
}

std::string TensorView::to_string() const {
  std::string text(dtype_name(dtype_));
  text += '[';
  for (int i = 0; i < num_dims_; ++i) text += (i > 0 ? ", " : "") + std::to_string(shape_[i]);
  return text + ']';
}

}  // namespace qx
