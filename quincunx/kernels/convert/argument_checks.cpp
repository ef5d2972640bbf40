#include "quincunx/kernels/convert/argument_checks.h"

#include <string>

#include "quincunx/kernels/convert/convert.h"

namespace qx::kernels {
namespace {

std::string named(std::string_view name) { return std::string(name) + ": "; }

Status check_memory(std::string_view name, const TensorView& view) {
  if (view.device().device_type != kDLCPU) {
    return type_error(named(name) + "must be on the CPU, got DLPack device type " +
                      std::to_string(static_cast<int>(view.device().device_type)));
  }
  if (view.data() == nullptr && view.num_elements() != 0) {
    return invalid_argument(named(name) + "null data for " + view.to_string());
  }
  return ok_status();
}

bool same_elements(const TensorView& a, const TensorView& b) {
  if (a.data() != b.data() || a.dtype() != b.dtype() || a.num_dims() != b.num_dims()) return false;
  for (int i = 0; i < a.num_dims(); ++i) {
    if (a.size(i) != b.size(i) || (a.size(i) != 1 && a.stride(i) != b.stride(i))) return false;
  }
  return true;
}

bool contiguous_overlap(const TensorView& a, const TensorView& b) {
  if (!a.is_contiguous() || !b.is_contiguous() || a.num_elements() == 0 || b.num_elements() == 0) return false;
  const char* a_begin = a.data_as<char>();
  const char* b_begin = b.data_as<char>();
  return a_begin < b_begin + b.size_bytes() && b_begin < a_begin + a.size_bytes();
}

}  // namespace

Status check_kernel_float(std::string_view name, const TensorView& view) {
  if (!is_kernel_float(view.dtype())) {
    return type_error(named(name) + "expected float32, bfloat16 or float16, got " + view.to_string());
  }
  return check_memory(name, view);
}

Status check_float32(std::string_view name, const TensorView& view) {
  if (view.dtype() != DType::kFloat32) return type_error(named(name) + "expected float32, got " + view.to_string());
  return check_memory(name, view);
}

Status check_same_dtype(std::string_view name, const TensorView& view, std::string_view other_name,
                        const TensorView& other) {
  if (view.dtype() == other.dtype()) return ok_status();
  return type_error(named(name) + "expected the dtype of " + std::string(other_name) + ", " +
                    std::string(dtype_name(other.dtype())) + ", got " + view.to_string());
}

Status check_not_scalar(std::string_view name, const TensorView& view) {
  if (view.num_dims() > 0) return ok_status();
  return invalid_argument(named(name) + "expected at least one dimension, got " + view.to_string());
}

Status check_rank(std::string_view name, const TensorView& view, int rank) {
  if (view.num_dims() == rank) return ok_status();
  return invalid_argument(named(name) + "expected " + std::to_string(rank) + " dimensions, got " + view.to_string());
}

Status check_same_shape(std::string_view name, const TensorView& view, std::string_view other_name,
                        const TensorView& other) {
  const auto a = view.shape();
  const auto b = other.shape();
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = a[i] == b[i];
  if (same) return ok_status();
  return invalid_argument(named(name) + "expected the shape of " + std::string(other_name) + " " + other.to_string() +
                          ", got " + view.to_string());
}

Status check_vector(std::string_view name, const TensorView& view, int64_t size, std::string_view size_meaning) {
  if (view.num_dims() == 1 && view.size(0) == size) return ok_status();
  return invalid_argument(named(name) + "expected one dimension of " + std::to_string(size) + " elements (" +
                          std::string(size_meaning) + "), got " + view.to_string());
}

Status check_output(std::string_view name, const TensorView& output, std::initializer_list<NamedView> inputs) {
  for (int i = 0; i < output.num_dims(); ++i) {
    if (output.size(i) > 1 && output.stride(i) == 0 && output.num_elements() != 0) {
      return invalid_argument(named(name) + "dimension " + std::to_string(i) + " of " + output.to_string() +
                              " has stride 0: its elements share memory");
    }
  }
  if (!output.has_distinct_elements()) {
    return invalid_argument(named(name) + "the strides of " + output.to_string() +
                            " let elements share memory; expected distinct elements");
  }
  for (const auto& [input_name, input] : inputs) {
    if (!same_elements(output, *input) && contiguous_overlap(output, *input)) {
      return invalid_argument(named(name) + "overlaps " + std::string(input_name) + " without being the same tensor (" +
                              output.to_string() + " and " + input->to_string() + ")");
    }
  }
  return ok_status();
}

}  // namespace qx::kernels
