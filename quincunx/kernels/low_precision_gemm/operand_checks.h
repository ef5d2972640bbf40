// Checks of operands that may have different types: each error names the argument.
#pragma once

#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// f32, bf16 or f16, on the CPU, with data where there are elements, and strides whose extent in bytes fits 64 bits.
Status check_float_operand(std::string_view name, const TensorView& view);

// An error that names both if `output` may overlap `input`. Of views with the same type interleaved columns of one
// matrix are told apart; of others, the memory between their first and last bytes counts.
Status check_memory_apart(std::string_view input_name, const TensorView& input, std::string_view output_name,
                          const TensorView& output);

}  // namespace qx::kernels
