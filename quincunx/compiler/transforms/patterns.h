// Patterns: recognised spellings of a composite operation, each a pass named qx-fuse-<pattern> (passes.td), and what
// became of their candidates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "quincunx/base/status.h"

namespace qx::compiler {

// A place where a pattern's characteristic operation stands.
struct Candidate {
  std::string pattern;         // "rms_norm"
  std::vector<int64_t> nodes;  // of the source graph, increasing
  bool fused = false;
  std::string reason;  // the guard that failed; empty if fused
};

// The names for PatternOptions::enabled, in the order in which the patterns run.
std::vector<std::string> patternNames();

struct PatternOptions {
  // By name; a pattern that is missing here runs.
  std::map<std::string, bool> enabled;
  // Restates composites in primitive operations afterwards. Matrix products keep their epilogues, because the values
  // between would equal no value of the source graph: whoever cannot take them switches `matmul_epilogue` off.
  bool decompose = false;
  // Takes epilogues only into products with a weight (dialect/weights.h), which a target can make regions of.
  bool weight_products_only = false;
  // Verifies the module after each pass.
  bool verify_each = true;
  // The module after each pass goes here as <number>-<pass>.mlir; empty: nowhere.
  std::string dump_directory;
};

// Canonicalizes, runs the patterns and removes what they left without use. Candidates that fused or failed a guard are
// appended to `candidates`. INVALID_ARGUMENT for an unknown pattern's name, INTERNAL if a pass fails.
Status runPatterns(mlir::ModuleOp module, const PatternOptions& options, std::vector<Candidate>& candidates);

// Makes the passes known to command lines and textual pipelines (qx-opt).
void registerPasses();

}  // namespace qx::compiler
