#include "quincunx/kernels/gemm/operands.h"

#include <algorithm>
#include <string>

namespace qx::kernels {
namespace {

// First and last element relative to data(), in elements. False where 64 bits do not hold the bytes.
bool element_range(const TensorView& view, int64_t& first, int64_t& last) {
  first = 0;
  last = 0;
  for (int i = 0; i < view.num_dims(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(view.size(i) - 1, view.stride(i), &reach)) return false;
    int64_t& end = reach < 0 ? first : last;
    if (__builtin_add_overflow(end, reach, &end)) return false;
  }
  int64_t bytes = 0;
  return !__builtin_add_overflow(last, 1, &bytes) &&
         !__builtin_mul_overflow(bytes, dtype_size_bytes(view.dtype()), &bytes) &&
         !__builtin_mul_overflow(first, dtype_size_bytes(view.dtype()), &bytes);
}

// Columns [0, width) of rows that are `stride` elements apart.
bool is_column_slice(const TensorView& view, int64_t stride) {
  const int dims = view.num_dims();
  if (dims < 2 || (view.size(-1) > 1 && view.stride(-1) != 1) || view.size(-1) > stride) return false;
  int64_t outer = stride;
  for (int i = dims - 2; i >= 0; --i) {
    if (view.size(i) > 1 && view.stride(i) % outer != 0) return false;
  }
  return true;
}

}  // namespace

Status check_f32_operand(std::string_view name, const TensorView& view) {
  const std::string prefix(name);
  if (view.dtype() != DType::kFloat32) return type_error(prefix + ": expected float32, got " + view.to_string());
  if (view.device().device_type != kDLCPU) {
    return type_error(prefix + ": expected a tensor on the CPU, got device type " +
                      std::to_string(static_cast<int>(view.device().device_type)));
  }
  if (view.num_elements() == 0) return ok_status();
  if (view.data() == nullptr) return invalid_argument(prefix + ": null data for " + view.to_string());
  int64_t first = 0;
  int64_t last = 0;
  if (!element_range(view, first, last)) {
    return invalid_argument(prefix + ": the strides of " + view.to_string() + " reach beyond 64 bits");
  }
  return ok_status();
}

bool may_overlap(const TensorView& left, const TensorView& right) {
  if (left.num_elements() == 0 || right.num_elements() == 0) return false;
  int64_t left_first = 0, left_last = 0, right_first = 0, right_last = 0;
  if (!element_range(left, left_first, left_last) || !element_range(right, right_first, right_last)) return true;
  // Integers, because pointers into different arrays must not be compared.
  const auto base = [](const TensorView& view) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(view.data()));
  };
  const int64_t size = dtype_size_bytes(left.dtype());
  if (base(left) + size * (left_last + 1) <= base(right) + size * right_first) return false;
  if (base(right) + size * (right_last + 1) <= base(left) + size * left_first) return false;

  const int64_t stride = left.num_dims() >= 2 ? left.stride(-2) : 0;
  if (stride <= 0 || !is_column_slice(left, stride) || !is_column_slice(right, stride)) return true;
  const int64_t bytes_apart = base(right) - base(left);
  if (bytes_apart % size != 0) return true;
  const int64_t offset = ((bytes_apart / size) % stride + stride) % stride;  // first column of right, seen from left
  return offset < left.size(-1) || offset + right.size(-1) > stride;
}

bool is_same_view(const TensorView& left, const TensorView& right) {
  return left.data() == right.data() && std::ranges::equal(left.shape(), right.shape()) &&
         std::ranges::equal(left.strides(), right.strides());
}

Status check_output_apart(std::string_view input_name, const TensorView& input, const TensorView& output) {
  if (!may_overlap(input, output)) return ok_status();
  return invalid_argument("output: " + output.to_string() + " overlaps " + std::string(input_name) + " " +
                          input.to_string() + " in memory; expected a buffer of its own");
}

Status check_output_writable(const TensorView& output) {
  if (output.has_distinct_elements()) return ok_status();
  return invalid_argument("output: the strides of " + output.to_string() +
                          " let elements share memory; expected distinct elements");
}

}  // namespace qx::kernels
