#include "quincunx/kernels/low_precision_gemm/operand_checks.h"

#include <algorithm>
#include <string>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/gemm/operands.h"

namespace qx::kernels {
namespace {

// Bytes [begin, end) that the elements lie in. Integers, because pointers into different arrays must not be compared.
struct ByteRange {
  int64_t begin, end;
};

// False where 64 bits do not hold the range.
bool find_byte_range(const TensorView& view, ByteRange& range) {
  const int64_t size = dtype_size_bytes(view.dtype());
  range.begin = static_cast<int64_t>(reinterpret_cast<intptr_t>(view.data()));
  if (__builtin_add_overflow(range.begin, size, &range.end)) return false;
  for (int i = 0; i < view.num_dims(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(view.size(i) - 1, view.stride(i), &reach) ||
        __builtin_mul_overflow(reach, size, &reach)) {
      return false;
    }
    int64_t& bound = reach < 0 ? range.begin : range.end;
    if (__builtin_add_overflow(bound, reach, &bound)) return false;
  }
  return true;
}

bool may_share_memory(const TensorView& left, const TensorView& right) {
  if (left.dtype() == right.dtype()) return may_overlap(left, right);
  if (left.num_elements() == 0 || right.num_elements() == 0) return false;
  ByteRange a{}, b{};
  return !find_byte_range(left, a) || !find_byte_range(right, b) || (a.begin < b.end && b.begin < a.end);
}

}  // namespace

Status check_float_operand(std::string_view name, const TensorView& view) {
  QX_RETURN_IF_ERROR(check_kernel_float(name, view));
  ByteRange range{};
  if (view.num_elements() == 0 || find_byte_range(view, range)) return ok_status();
  return invalid_argument(std::string(name) + ": the strides of " + view.to_string() + " reach beyond 64 bits");
}

Status check_memory_apart(std::string_view input_name, const TensorView& input, std::string_view output_name,
                          const TensorView& output) {
  if (!may_share_memory(input, output)) return ok_status();
  return invalid_argument(std::string(output_name) + ": " + output.to_string() + " overlaps " +
                          std::string(input_name) + " " + input.to_string() +
                          " in memory; expected a buffer of its own");
}

}  // namespace qx::kernels
