// A region that is one matrix product with its epilogue, by the packed product of the kernel library:
//
//   output = activation(scale * (lhs weight) + bias) * multiplier + residual
//
// Multiplier, residual and output may have other leading dims than the product has rows, as long as their elements in
// row-major order are those of [rows, columns].
#pragma once

#include <memory>

#include "quincunx/compiler/compiler.h"
#include "quincunx/kernels/gemm/gemm.h"

namespace qx::compiler {

struct ProductProgram {
  // Of the inputs and of the one output.
  std::vector<graph::TensorType> inputs;
  graph::TensorType output;
  // Positions among the inputs; -1 for what is missing.
  int32_t lhs = 0;
  int32_t weight = 1;
  int32_t bias = -1;
  int32_t multiplier = -1;
  int32_t residual = -1;
  bool transpose_lhs = false;
  bool transpose_weight = false;
  kernels::Activation activation = kernels::Activation::kNone;
  double scale = 1.0;
};

std::shared_ptr<const Kernel> createProductKernel(const ProductProgram& program);

}  // namespace qx::compiler
