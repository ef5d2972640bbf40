// The rule of torch.Tensor.view.
#pragma once

#include <optional>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::lite {

// `x` with another shape, where -1 stands for the one size that the others leave. None where no strides give it.
Result<std::optional<TensorView>> reshaped(const TensorView& x, std::vector<int64_t> shape);

}  // namespace qx::lite
