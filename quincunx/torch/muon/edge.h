// Between torch and the core: errors become exceptions, tensors become spans. Torch maps std::exception to
// RuntimeError; the code's name in front of the message lets the Python side raise the exception that belongs to it.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "quincunx/base/status.h"

namespace qx::muon {

inline void throw_if_error(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

// The elements of a contiguous CPU tensor of the given type.
template <typename T>
std::span<T> elements_of(const torch::stable::Tensor& tensor, torch::headeronly::ScalarType dtype,
                         const char* argument) {
  if (!tensor.is_cpu() || !tensor.is_contiguous() || tensor.scalar_type() != dtype) {
    throw_if_error(type_error(std::string(argument) + ": expected a contiguous CPU tensor of the documented dtype"));
  }
  return {static_cast<T*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel())};
}

inline std::span<float> floats_of(const torch::stable::Tensor& tensor, const char* argument) {
  return elements_of<float>(tensor, torch::headeronly::ScalarType::Float, argument);
}
inline std::span<double> doubles_of(const torch::stable::Tensor& tensor, const char* argument) {
  return elements_of<double>(tensor, torch::headeronly::ScalarType::Double, argument);
}
inline std::span<int64_t> integers_of(const torch::stable::Tensor& tensor, const char* argument) {
  return elements_of<int64_t>(tensor, torch::headeronly::ScalarType::Long, argument);
}

}  // namespace qx::muon
