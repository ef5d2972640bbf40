// A graph as an mfuse module, and back. No torch: whoever has a torch.fx graph makes a graph::Graph of it first.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::compiler {

// Loads the dialects that importGraph and the passes need. Call it once on a new context.
void loadDialects(mlir::MLIRContext& context);

// A module with one function @main, whose arguments are graph.inputs and whose results are graph.outputs in order.
// Constants are mfuse.weight; a node that the dialect does not model, or not with these arguments, is an mfuse.opaque.
// Every operation and argument has its origin (dialect/origin.h); sizes are affine in graph.symbols by their index.
// INVALID_ARGUMENT if graph::verify refuses the graph or a node's result types contradict its operands.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importGraph(const graph::Graph& graph, mlir::MLIRContext& context);

// The graph of a module that came from importGraph(source), after passes: symbols, constants and opaque nodes are
// source's, every other operation is one or more nodes of PyTorch's operators, composites included. UNIMPLEMENTED names
// the operation that no operator expresses.
Result<graph::Graph> exportGraph(mlir::ModuleOp module, const graph::Graph& source);

}  // namespace qx::compiler
