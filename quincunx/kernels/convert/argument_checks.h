// The checks that kernel entries share. Each returns a Status whose message starts with the argument's name.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

using NamedView = std::pair<std::string_view, const TensorView*>;

// float32, bfloat16 or float16, on the CPU, with data unless empty.
Status check_kernel_float(std::string_view name, const TensorView& view);
Status check_float32(std::string_view name, const TensorView& view);
Status check_same_dtype(std::string_view name, const TensorView& view, std::string_view other_name,
                        const TensorView& other);
// At least one dimension.
Status check_not_scalar(std::string_view name, const TensorView& view);
Status check_rank(std::string_view name, const TensorView& view, int rank);
Status check_same_shape(std::string_view name, const TensorView& view, std::string_view other_name,
                        const TensorView& other);
// One dimension of `size` elements.
Status check_vector(std::string_view name, const TensorView& view, int64_t size, std::string_view size_meaning);
// No two elements of `output` share memory, and each input is either the same elements in the same order or, where
// both are contiguous, elsewhere. Overlap of two interleaved strided views is the caller's to avoid.
Status check_output(std::string_view name, const TensorView& output, std::initializer_list<NamedView> inputs);

}  // namespace qx::kernels
