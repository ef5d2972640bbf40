// Between stable-ABI tensors and the core: views without a copy, and errors as exceptions.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <span>
#include <stdexcept>
#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::torch_bridge {

// Throws std::runtime_error with the code's name in front ("INVALID_ARGUMENT: ..."), from which the Python side chooses
// the exception: PyTorch turns every exception of a stable-ABI operator into RuntimeError.
inline void throw_if_error(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

template <typename T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

// A view of a strided float32 tensor on the CPU; throws a TYPE_ERROR that names `name` for any other.
inline TensorView float32_view(std::string_view name, const torch::stable::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.scalar_type() != torch::headeronly::ScalarType::Float) {
    throw_if_error(type_error(std::string(name) + ": expected a float32 tensor on the CPU"));
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return value_or_throw(TensorView::strided(tensor.mutable_data_ptr(), DType::kFloat32,
                                            std::span(sizes.data(), sizes.size()),
                                            std::span(strides.data(), strides.size())));
}

// The same for float32, bfloat16 and float16.
inline TensorView kernel_float_view(std::string_view name, const torch::stable::Tensor& tensor) {
  using torch::headeronly::ScalarType;
  const ScalarType type = tensor.scalar_type();
  if (!tensor.is_cpu() || (type != ScalarType::Float && type != ScalarType::BFloat16 && type != ScalarType::Half)) {
    throw_if_error(type_error(std::string(name) + ": expected a float32, bfloat16 or float16 tensor on the CPU"));
  }
  const DType dtype = type == ScalarType::Float      ? DType::kFloat32
                      : type == ScalarType::BFloat16 ? DType::kBFloat16
                                                     : DType::kFloat16;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return value_or_throw(TensorView::strided(tensor.mutable_data_ptr(), dtype, std::span(sizes.data(), sizes.size()),
                                            std::span(strides.data(), strides.size())));
}

// The same for a mask: bool or float32.
inline TensorView mask_view(std::string_view name, const torch::stable::Tensor& tensor) {
  using torch::headeronly::ScalarType;
  const ScalarType type = tensor.scalar_type();
  if (!tensor.is_cpu() || (type != ScalarType::Float && type != ScalarType::Bool)) {
    throw_if_error(type_error(std::string(name) + ": expected a bool or float32 tensor on the CPU"));
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return value_or_throw(
      TensorView::strided(tensor.mutable_data_ptr(), type == ScalarType::Bool ? DType::kBool : DType::kFloat32,
                          std::span(sizes.data(), sizes.size()), std::span(strides.data(), strides.size())));
}

// The same for indices: int64 or int32.
inline TensorView index_view(std::string_view name, const torch::stable::Tensor& tensor) {
  using torch::headeronly::ScalarType;
  const ScalarType type = tensor.scalar_type();
  if (!tensor.is_cpu() || (type != ScalarType::Long && type != ScalarType::Int)) {
    throw_if_error(type_error(std::string(name) + ": expected an int64 or int32 tensor on the CPU"));
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return value_or_throw(
      TensorView::strided(tensor.mutable_data_ptr(), type == ScalarType::Long ? DType::kInt64 : DType::kInt32,
                          std::span(sizes.data(), sizes.size()), std::span(strides.data(), strides.size())));
}

}  // namespace qx::torch_bridge
