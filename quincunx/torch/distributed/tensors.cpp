#include "quincunx/torch/distributed/tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>

#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {
namespace {

DType dtype_from(at::ScalarType type, const std::string& name) {
  switch (type) {
    case at::kBool: return DType::kBool;
    case at::kChar: return DType::kInt8;
    case at::kByte: return DType::kUInt8;
    case at::kShort: return DType::kInt16;
    case at::kUInt16: return DType::kUInt16;
    case at::kInt: return DType::kInt32;
    case at::kUInt32: return DType::kUInt32;
    case at::kLong: return DType::kInt64;
    case at::kUInt64: return DType::kUInt64;
    case at::kFloat8_e4m3fn: return DType::kFloat8E4M3FN;
    case at::kFloat8_e5m2: return DType::kFloat8E5M2;
    case at::kFloat8_e4m3fnuz: return DType::kFloat8E4M3FNUZ;
    case at::kFloat8_e5m2fnuz: return DType::kFloat8E5M2FNUZ;
    case at::kFloat8_e8m0fnu: return DType::kFloat8E8M0FNU;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBFloat16;
    case at::kFloat: return DType::kFloat32;
    case at::kDouble: return DType::kFloat64;
    case at::kComplexFloat: return DType::kComplex64;
    case at::kComplexDouble: return DType::kComplex128;
    default:
      throw_status(type_error(name + ": dtype " + c10::toString(type) +
                              " cannot be communicated; expected bool, integers, floating point, complex64 or "
                              "complex128, or a view of another dtype"));
  }
}

// Conjugate and negative views read other values than their memory holds.
bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

void copy_values(const at::Tensor& to, const at::Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  to.copy_(from);
}

Buffer buffer_of(const at::Tensor& tensor, void* data, const std::string& name) {
  return {.data = data, .count = tensor.numel(), .dtype = dtype_from(tensor.scalar_type(), name)};
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) throw_status(type_error(name + ": expected a tensor, got none"));
  if (!tensor.device().is_cpu()) {
    throw_status(type_error(name + ": expected a CPU tensor, got one on " + tensor.device().str()));
  }
  if (tensor.layout() != at::kStrided) {
    throw_status(type_error(name + ": expected a dense tensor, got one with layout " + c10::str(tensor.layout())));
  }
  dtype_from(tensor.scalar_type(), name);
}

void check_output(const at::Tensor& tensor, const std::string& name) {
  check_tensor(tensor, name);
  if (!tensor.is_contiguous() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    throw_status(invalid_argument(name + ": its elements share memory, so it cannot be written; pass a clone"));
  }
}

Buffer OperationTensors::input(const at::Tensor& tensor, const std::string& name) {
  check_tensor(tensor, name);
  inputs.push_back(tensor);
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor plain = is_plain(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
  alive_.push_back(plain);
  return buffer_of(plain, const_cast<void*>(plain.const_data_ptr()), name);
}

Buffer OperationTensors::output(const at::Tensor& tensor, const std::string& name, bool reads) {
  check_output(tensor, name);
  if (reads) inputs.push_back(tensor);
  if (is_plain(tensor)) {
    alive_.push_back(tensor);
    return buffer_of(tensor, tensor.mutable_data_ptr(), name);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor staged = at::empty(tensor.sizes(), tensor.options());
  if (reads) copy_values(staged, tensor);
  copies_.push_back({staged, tensor});
  return buffer_of(staged, staged.mutable_data_ptr(), name);
}

void OperationTensors::deliver() {
  for (const Copy& copy : copies_) copy_values(copy.to, copy.from);
  copies_.clear();
  if (combine) combine();
}

void check_same_dtype(const Buffer& buffer, const std::string& name, const Buffer& other,
                      const std::string& other_name) {
  if (buffer.dtype == other.dtype) return;
  throw_status(type_error(name + ": expected dtype " + std::string(dtype_name(other.dtype)) + " of " + other_name +
                          ", got " + std::string(dtype_name(buffer.dtype))));
}

void check_count(int64_t got, int64_t want, const std::string& what) {
  if (got == want) return;
  throw_status(invalid_argument(what + ": expected " + std::to_string(want) + " elements, got " + std::to_string(got)));
}

void check_list(size_t got, size_t want, const std::string& name) {
  if (got == want) return;
  throw_status(
      invalid_argument(name + ": expected a list of " + std::to_string(want) + ", got " + std::to_string(got)));
}

std::vector<Buffer> equal_parts(const Buffer& buffer, int num_parts, const std::string& name) {
  if (buffer.count % num_parts != 0) {
    throw_status(invalid_argument(name + ": " + std::to_string(buffer.count) + " elements cannot be divided among " +
                                  std::to_string(num_parts) + " ranks"));
  }
  Buffer part{.data = buffer.data, .count = buffer.count / num_parts, .dtype = buffer.dtype};
  std::vector<Buffer> parts;
  parts.reserve(num_parts);
  for (int i = 0; i < num_parts; ++i) {
    parts.push_back(part);
    part.data = static_cast<char*>(part.data) + part.size_bytes();
  }
  return parts;
}

std::vector<Buffer> split_parts(const Buffer& buffer, const at::Tensor& tensor, const std::vector<int64_t>& split_sizes,
                                int num_parts, const std::string& name) {
  const int64_t num_rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (split_sizes.empty()) {
    if (num_rows % num_parts != 0) {
      throw_status(invalid_argument(name + ": dimension 0 of size " + std::to_string(num_rows) +
                                    " cannot be divided among " + std::to_string(num_parts) + " ranks"));
    }
    return equal_parts(buffer, num_parts, name);
  }
  check_list(split_sizes.size(), num_parts, name + "_split_sizes");
  for (const int64_t size : split_sizes) {
    if (size < 0) {
      throw_status(invalid_argument(name + "_split_sizes: a size must not be negative, got " + std::to_string(size)));
    }
  }
  const int64_t total = std::accumulate(split_sizes.begin(), split_sizes.end(), int64_t{0});
  if (total != num_rows) {
    throw_status(invalid_argument(name + "_split_sizes: expected a sum of " + std::to_string(num_rows) +
                                  ", the size of dimension 0, got " + std::to_string(total)));
  }
  const int64_t row_count = num_rows == 0 ? 0 : buffer.count / num_rows;
  std::vector<Buffer> parts;
  parts.reserve(num_parts);
  char* data = static_cast<char*>(buffer.data);
  for (const int64_t size : split_sizes) {
    parts.push_back({.data = data, .count = size * row_count, .dtype = buffer.dtype});
    data += parts.back().size_bytes();
  }
  return parts;
}

collectives::Reduction reduction_from(const c10d::ReduceOp& op) {
  using collectives::ReduceOp;
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return {.op = ReduceOp::kSum};
    case c10d::ReduceOp::AVG: return {.op = ReduceOp::kAverage};
    case c10d::ReduceOp::PRODUCT: return {.op = ReduceOp::kProduct};
    case c10d::ReduceOp::MIN: return {.op = ReduceOp::kMin};
    case c10d::ReduceOp::MAX: return {.op = ReduceOp::kMax};
    case c10d::ReduceOp::BAND: return {.op = ReduceOp::kBitAnd};
    case c10d::ReduceOp::BOR: return {.op = ReduceOp::kBitOr};
    case c10d::ReduceOp::BXOR: return {.op = ReduceOp::kBitXor};
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      if (supplement == nullptr) throw_status(invalid_argument("op: PREMUL_SUM without its factor"));
      const at::Tensor& factor = supplement->tensor_factor;
      return {.op = ReduceOp::kPreMulSum,
              .pre_multiplier = factor.defined() ? factor.item<double>() : supplement->double_factor};
    }
    default: throw_status(invalid_argument("op: unknown reduction " + std::to_string(op.op_)));
  }
}

}  // namespace qx::distributed
