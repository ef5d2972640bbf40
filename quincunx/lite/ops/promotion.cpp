#include "quincunx/lite/ops/promotion.h"

namespace qx::lite {
namespace {

int category(DType dtype) {
  if (dtype == DType::kBool) return 0;
  return is_floating_point(dtype) ? 2 : 1;
}

bool is_unsigned(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

DType signed_of_bytes(int64_t bytes) {
  switch (bytes) {
    case 1: return DType::kInt8;
    case 2: return DType::kInt16;
    case 4: return DType::kInt32;
    default: return DType::kInt64;
  }
}

}  // namespace

DType Promotion::common(DType left, DType right) {
  if (left == right) return left;
  if (category(left) != category(right)) return category(left) > category(right) ? left : right;
  const int64_t left_bytes = dtype_size_bytes(left);
  const int64_t right_bytes = dtype_size_bytes(right);
  if (is_floating_point(left)) {
    if (left_bytes == right_bytes) return DType::kFloat32;  // bfloat16 with float16
    return left_bytes > right_bytes ? left : right;
  }
  if (is_unsigned(left) == is_unsigned(right)) return left_bytes > right_bytes ? left : right;
  const int64_t unsigned_bytes = is_unsigned(left) ? left_bytes : right_bytes;
  const int64_t signed_bytes = is_unsigned(left) ? right_bytes : left_bytes;
  return signed_of_bytes(signed_bytes > unsigned_bytes ? signed_bytes : 2 * unsigned_bytes);
}

void Promotion::add(const TensorView& tensor) {
  const int kind = tensor.num_dims() > 0 ? 0 : 1;
  best_[kind] = has_[kind] ? common(best_[kind], tensor.dtype()) : tensor.dtype();
  has_[kind] = true;
}

void Promotion::add(const Number& number) {
  const DType dtype = number.kind == Number::Kind::kBool      ? DType::kBool
                      : number.kind == Number::Kind::kInteger ? DType::kInt64
                                                              : DType::kFloat32;
  best_[2] = has_[2] ? common(best_[2], dtype) : dtype;
  has_[2] = true;
}

DType Promotion::result() const {
  DType dtype = DType::kBool;
  bool any = false;
  for (int kind = 0; kind < 3; ++kind) {
    if (!has_[kind]) continue;
    if (!any || category(best_[kind]) > category(dtype)) dtype = best_[kind];
    any = true;
  }
  return dtype;
}

DType promoted_dtype(const Call& call, size_t first, size_t last) {
  Promotion promotion;
  for (size_t i = first; i <= last; ++i) {
    if (call.is_tensor(i)) {
      promotion.add(call.tensor(i));
    } else if (call.has(i)) {
      promotion.add(call.number(i));
    }
  }
  return promotion.result();
}

}  // namespace qx::lite
