#include "quincunx/compiler/compiler.h"

#include <algorithm>
#include <filesystem>

#include "llvm/Support/raw_ostream.h"
#include "quincunx/compiler/clustering/regions.h"
#include "quincunx/compiler/clustering/target.h"
#include "quincunx/compiler/dialect/labels.h"
#include "quincunx/compiler/dialect/weights.h"
#include "quincunx/compiler/import/import.h"
#include "quincunx/compiler/transforms/patterns.h"

namespace qx::compiler {
namespace {

Status checkOptions(const graph::Graph& graph, const FuseOptions& options) {
  const std::vector<std::string> known = patternNames();
  for (const auto& [name, enabled] : options.patterns) {
    if (std::ranges::count(known, name) != 0) continue;
    std::string names;
    for (const std::string& pattern : known) names += (names.empty() ? "" : ", ") + pattern;
    return invalid_argument("patterns has \"" + name + "\", expected names among: " + names);
  }
  if (options.min_region_size < 1) {
    return invalid_argument("min_region_size is " + std::to_string(options.min_region_size) + ", expected 1 or more");
  }
  for (const graph::ValueId weight : options.weights) {
    if (std::ranges::count(graph.inputs, weight) != 0) continue;
    return invalid_argument("weights has the value " + std::to_string(weight) + ", expected inputs of the graph");
  }
  if (!options.labels.empty() && options.labels.size() != graph.nodes.size()) {
    return invalid_argument("labels has " + std::to_string(options.labels.size()) + " entries, expected one for each " +
                            "of the " + std::to_string(graph.nodes.size()) + " nodes, or none");
  }
  if (options.dump_directory.empty()) return ok_status();
  std::error_code error;
  std::filesystem::create_directories(options.dump_directory, error);
  if (!std::filesystem::is_directory(options.dump_directory, error)) {
    return invalid_argument("dump_directory is \"" + options.dump_directory + "\", expected a folder that can be made");
  }
  return ok_status();
}

void dump(mlir::ModuleOp module, const std::string& directory, const std::string& file) {
  std::error_code error;
  llvm::raw_fd_ostream out(directory + "/" + file, error);
  if (!error) module.print(out);
}

// Names of the recognised patterns whose nodes all lie in the region.
void notePatterns(const std::vector<Candidate>& candidates, Region& region) {
  for (const Candidate& candidate : candidates) {
    const bool inside = candidate.fused && std::ranges::all_of(candidate.nodes, [&](int64_t node) {
                          return std::ranges::binary_search(region.nodes, static_cast<int32_t>(node));
                        });
    if (inside && std::ranges::count(region.patterns, candidate.pattern) == 0) {
      region.patterns.push_back(candidate.pattern);
    }
  }
}

}  // namespace

Result<Fusion> fuse(const graph::Graph& graph, const FuseOptions& options) {
  QX_RETURN_IF_ERROR(checkOptions(graph, options));
  QX_ASSIGN_OR_RETURN(const std::shared_ptr<const Target> target, findTarget(options.target));
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  loadDialects(context);
  QX_ASSIGN_OR_RETURN(const mlir::OwningOpRef<mlir::ModuleOp> module, importGraph(graph, context));
  if (!options.dump_directory.empty()) dump(*module, options.dump_directory, "00-import.mlir");
  mfuse::setLabels(*module, options.labels);

  PatternOptions patterns;
  patterns.enabled = options.patterns;
  // What follows a product is fused better without it where that is no region.
  const bool takes_products = patterns.enabled.try_emplace("matmul_epilogue", !options.weights.empty()).first->second;
  if (takes_products) {
    patterns.weight_products_only = !options.weights.empty();
    mfuse::markWeights(*module, llvm::SmallVector<int64_t>(options.weights.begin(), options.weights.end()));
  }
  patterns.decompose = true;
  patterns.verify_each = options.check;
  patterns.dump_directory = options.dump_directory;
  std::vector<Candidate> candidates;
  QX_RETURN_IF_ERROR(runPatterns(*module, patterns, candidates));

  Fusion fusion;
  for (const Candidate& candidate : candidates) {
    fusion.report.push_back(
        {candidate.pattern, {candidate.nodes.begin(), candidate.nodes.end()}, candidate.fused, candidate.reason});
  }
  fusion.regions = makeRegions(*module, graph, *target, options, fusion.report);
  for (Region& region : fusion.regions) notePatterns(candidates, region);
  if (!options.dump_directory.empty()) dump(*module, options.dump_directory, "99-regions.mlir");
  return fusion;
}

}  // namespace qx::compiler
