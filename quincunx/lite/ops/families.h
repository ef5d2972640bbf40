// The families of operators, each a source file; table.cpp lists them.
#pragma once

#include <span>

#include "quincunx/lite/ops/operator.h"

namespace qx::lite {

std::span<const Operator> activation_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> binary_operators();
std::span<const Operator> cached_attention_operators();
std::span<const Operator> comparison_operators();
std::span<const Operator> concatenation_operators();
std::span<const Operator> convolution_operators();
std::span<const Operator> copy_operators();
std::span<const Operator> creation_operators();
std::span<const Operator> embedding_operators();
std::span<const Operator> grid_sample_operators();
std::span<const Operator> index_operators();
std::span<const Operator> linear_operators();
std::span<const Operator> matmul_operators();
std::span<const Operator> norm_operators();
std::span<const Operator> pad_operators();
std::span<const Operator> pool_operators();
std::span<const Operator> reduction_operators();
std::span<const Operator> scan_operators();
std::span<const Operator> softmax_operators();
std::span<const Operator> sort_operators();
std::span<const Operator> ternary_operators();
std::span<const Operator> tile_operators();
std::span<const Operator> triangle_operators();
std::span<const Operator> unary_operators();
std::span<const Operator> upsample_operators();
std::span<const Operator> view_operators();

}  // namespace qx::lite
