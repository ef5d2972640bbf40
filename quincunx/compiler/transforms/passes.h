// The passes that passes.td declares: create functions for each.
#pragma once

#include <memory>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::compiler {

#define GEN_PASS_DECL
#include "quincunx/compiler/transforms/passes.h.inc"

}  // namespace qx::compiler
