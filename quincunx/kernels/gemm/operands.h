// Checks that the entries of matrix kernels share: they name the argument, what it is and what was expected.
#pragma once

#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// f32, on the CPU, with data where there are elements, and strides whose extent in bytes fits 64 bits.
Status check_f32_operand(std::string_view name, const TensorView& view);

// False only if no element of one lies on an element of the other: memory ranges that do not meet, or interleaved
// slices (columns of one matrix) with equal outer strides. Both have passed check_f32_operand.
bool may_overlap(const TensorView& left, const TensorView& right);

// The same elements at the same places: an operation that reads an element before it writes it may run in place.
bool is_same_view(const TensorView& left, const TensorView& right);

// An error that names both if `output` may overlap `input`.
Status check_output_apart(std::string_view input_name, const TensorView& input, const TensorView& output);

// An error unless output.has_distinct_elements().
Status check_output_writable(const TensorView& output);

}  // namespace qx::kernels
