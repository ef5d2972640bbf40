// Regions that reduce over several sets of dims, like a layer norm's backward with the gradients of its parameters: one
// loop program for each set, which all read the region's inputs.
#pragma once

#include <vector>

#include "quincunx/compiler/codegen/region_lowering.h"

namespace qx::compiler {

// `ops` as one program, or as at most kMaxParts. What several parts need is computed by each, so it must be cheap; a
// result of reductions over two sets of dims is UNIMPLEMENTED.
inline constexpr size_t kMaxParts = 2;
Result<std::vector<LoweredRegion>> lowerParts(llvm::ArrayRef<mlir::Operation*> ops);

}  // namespace qx::compiler
