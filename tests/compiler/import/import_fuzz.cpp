// The importer, the patterns and the exporter over arbitrary graphs: an error or a valid module, never a crash.
#include <cstdlib>

#include "compiler/import/graph_from_bytes.h"
#include "mlir/IR/Verifier.h"
#include "quincunx/compiler/import/import.h"
#include "quincunx/compiler/transforms/patterns.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qx::compiler;
  GraphFromBytes source({data, size});
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  loadDialects(context);
  auto module = importGraph(source.graph(), context);
  if (!module.ok()) return 0;
  if (mlir::failed(mlir::verify(module->get()))) std::abort();
  std::vector<Candidate> candidates;
  PatternOptions options;
  options.decompose = true;
  if (!runPatterns(module->get(), options, candidates).ok()) std::abort();
  static_cast<void>(exportGraph(module->get(), source.graph()).ok());
  return 0;
}
