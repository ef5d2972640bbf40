// Memory for results, without the dispatcher that torch::stable::empty_like and new_empty look up and box for: about a
// microsecond a call, as much as a small row operator takes.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace qx::torch_bridge {

// Uninitialised, of the dtype of `like`, which is on the CPU.
inline torch::stable::Tensor strided_result(const torch::stable::Tensor& like, std::span<const int64_t> shape,
                                            std::span<const int64_t> strides) {
  int32_t dtype = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(),
                                                         strides.data(), dtype, aoti_torch_device_type_cpu(), 0,
                                                         &handle));
  return torch::stable::Tensor(handle);
}

// The same, contiguous.
inline torch::stable::Tensor contiguous_result(const torch::stable::Tensor& like, std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i] > 0 ? shape[i] : 1;
  }
  return strided_result(like, shape, strides);
}

// As torch.empty_like(like).
inline torch::stable::Tensor result_like(const torch::stable::Tensor& like) {
  if (!like.is_contiguous()) return torch::stable::empty_like(like);
  const auto sizes = like.sizes();
  return contiguous_result(like, std::span(sizes.data(), sizes.size()));
}

}  // namespace qx::torch_bridge
