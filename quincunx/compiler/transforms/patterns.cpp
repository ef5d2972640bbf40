#include "quincunx/compiler/transforms/patterns.h"

#include <algorithm>
#include <functional>
#include <set>

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_REGISTRATION
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

struct Pattern {
  const char* name;
  std::unique_ptr<mlir::Pass> (*create)();
};

// In this order: activations before what contains them, the layer norm before the RMS norm that its second half is,
// epilogues of products before the norm that would take the residual's sum.
constexpr Pattern kPatterns[] = {
    {"silu", createFuseSilu},
    {"gelu", createFuseGelu},
    {"softmax", createFuseSoftmax},
    {"layer_norm", createFuseLayerNorm},
    {"rms_norm", createFuseRmsNorm},
    {"swiglu", createFuseSwiglu},
    {"matmul_epilogue", createFuseMatmulEpilogue},
    {"add_rms_norm", createFuseAddRmsNorm},
    {"rope", createFuseRope},
};
constexpr llvm::StringRef kProducts = "matmul_epilogue";

// Keeps remarks of patterns as candidates and the first error.
class Listener {
 public:
  explicit Listener(std::vector<Candidate>& candidates) : candidates_(candidates) {}

  mlir::LogicalResult operator()(mlir::Diagnostic& diagnostic) {
    std::string text = diagnostic.str();
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && error.empty()) error = text;
    size_t colon = text.find(": ");
    if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Remark || colon == std::string::npos)
      return mlir::success();
    llvm::SmallVector<int64_t> nodes = mfuse::sourceNodes(diagnostic.getLocation());
    Candidate candidate{text.substr(0, colon), {nodes.begin(), nodes.end()}, false, text.substr(colon + 2)};
    candidate.fused = candidate.reason == "fused";
    if (candidate.fused) candidate.reason.clear();
    if (seen_.insert({candidate.pattern, candidate.nodes}).second || candidate.nodes.empty()) {
      candidates_.push_back(std::move(candidate));
    }
    return mlir::success();
  }

  std::string error;

 private:
  std::vector<Candidate>& candidates_;
  std::set<std::pair<std::string, std::vector<int64_t>>> seen_;
};

Status dump(mlir::ModuleOp module, const std::string& directory, size_t number, llvm::StringRef pass) {
  if (directory.empty()) return ok_status();
  if (std::error_code error = llvm::sys::fs::create_directories(directory)) {
    return invalid_argument("dump_directory \"" + directory + "\": " + error.message());
  }
  std::error_code error;
  std::string path = directory + "/" + (number < 10 ? "0" : "") + std::to_string(number) + "-" + pass.str() + ".mlir";
  llvm::raw_fd_ostream file(path, error);
  if (error) return invalid_argument("dump_directory: cannot write \"" + path + "\": " + error.message());
  module.print(file, mlir::OpPrintingFlags().enableDebugInfo());
  return ok_status();
}

}  // namespace

std::vector<std::string> patternNames() {
  std::vector<std::string> names;
  for (const Pattern& pattern : kPatterns) names.emplace_back(pattern.name);
  return names;
}

Status runPatterns(mlir::ModuleOp module, const PatternOptions& options, std::vector<Candidate>& candidates) {
  for (const auto& [name, on] : options.enabled) {
    bool known = llvm::any_of(kPatterns, [&](const Pattern& pattern) { return pattern.name == name; });
    if (!known)
      return invalid_argument("patterns has \"" + name + "\", expected one of " + llvm::join(patternNames(), ", "));
  }
  std::vector<std::unique_ptr<mlir::Pass>> passes;
  passes.push_back(mlir::createCanonicalizerPass());
  passes.push_back(mlir::createCSEPass());
  for (const Pattern& pattern : kPatterns) {
    auto found = options.enabled.find(pattern.name);
    if (found != options.enabled.end() && !found->second) continue;
    const bool weights_only = pattern.name == kProducts && options.weight_products_only;
    passes.push_back(weights_only ? createFuseMatmulEpilogue({.weightsOnly = true}) : pattern.create());
  }
  if (options.decompose) passes.push_back(createDecomposeComposites());
  passes.push_back(mlir::createCanonicalizerPass());
  Listener listener(candidates);
  mlir::ScopedDiagnosticHandler handler(module.getContext(), std::ref(listener));
  QX_RETURN_IF_ERROR(dump(module, options.dump_directory, 0, "import"));
  for (size_t index = 0; index < passes.size(); ++index) {
    std::string name = passes[index]->getArgument().str();
    mlir::PassManager manager(module.getContext());
    manager.enableVerifier(options.verify_each);
    bool onFunction = passes[index]->getOpName() == mlir::func::FuncOp::getOperationName();
    if (onFunction) {
      manager.nest<mlir::func::FuncOp>().addPass(std::move(passes[index]));
    } else {
      manager.addPass(std::move(passes[index]));
    }
    if (mlir::failed(manager.run(module))) return internal_error("pass " + name + " failed: " + listener.error);
    QX_RETURN_IF_ERROR(dump(module, options.dump_directory, index + 1, name));
  }
  return ok_status();
}

void registerPasses() {
  registerQuincunxPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
}

}  // namespace qx::compiler
