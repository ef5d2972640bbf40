// The scalar reference of compiled loops: the program taken at its word, element by element, floats in f64.
#pragma once

#include <memory>
#include <span>

#include "quincunx/compiler/codegen/loop_program.h"
#include "quincunx/compiler/compiler.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::compiler {

// As Kernel::run, slowly. Stores round once to the output's dtype; casts to half precision round too.
Status runReference(const LoopProgram& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                    std::span<const int64_t> symbols);

// `kernel`, whose first call is compared with the reference: INTERNAL where an output differs by more than
// kCheckTolerance of its largest finite element (floats of 16 bits: four units in the last place), or at all (others).
inline constexpr double kCheckTolerance = 1e-4;
std::shared_ptr<const Kernel> checkedKernel(const LoopProgram& program, std::shared_ptr<const Kernel> kernel);

}  // namespace qx::compiler
