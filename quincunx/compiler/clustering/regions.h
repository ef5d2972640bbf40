// The regions of an imported graph: clusters, trimmed of what is free, tied to the nodes and values of the source.
#pragma once

#include <vector>

#include "mlir/IR/BuiltinOps.h"
#include "quincunx/base/status.h"
#include "quincunx/compiler/clustering/target.h"
#include "quincunx/compiler/compiler.h"
#include "quincunx/graph/graph.h"

namespace qx::compiler {

// Regions of `module`, which came from importGraph(graph) and runPatterns, with their kernels, in the order of the
// nodes where they may stand. Their operations get the attribute "qx.region" with the region's name. What does not
// become a region is told in `report`.
std::vector<Region> makeRegions(mlir::ModuleOp module, const graph::Graph& graph, const Target& target,
                                const FuseOptions& options, std::vector<ReportEntry>& report);

}  // namespace qx::compiler
