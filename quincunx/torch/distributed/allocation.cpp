#include <ATen/ATen.h>

#include <utility>

#include "quincunx/torch/distributed/backend.h"
#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {

at::Tensor McclBackend::allocateTensor(long size, at::TensorOptions options) {  // NOLINT(google-runtime-int): torch's
  if (size < 0) throw_status(invalid_argument("size: must not be negative, got " + std::to_string(size)));
  if (!options.device().is_cpu()) {
    throw_status(type_error("device: expected the CPU, got " + options.device().str()));
  }
  const auto item_bytes = static_cast<int64_t>(options.dtype().itemsize());
  if (size > (int64_t{1} << 48) / item_bytes) {
    throw_status(invalid_argument("size: " + std::to_string(size) + " elements are more than can be allocated"));
  }
  auto memory = communicator()->allocate(size * item_bytes);
  throw_if_error(memory.status());
  void* const data = memory->get();
  return at::from_blob(
      data, {size}, [memory = std::move(memory).value()](void* /*data*/) mutable { memory.reset(); }, options);
}

}  // namespace qx::distributed
