#include "quincunx/compiler/dialect/labels.h"

#include "mlir/IR/Builders.h"
#include "quincunx/compiler/dialect/origin.h"

namespace qx::mfuse {
namespace {

constexpr const char* kAttribute = "mfuse.labels";

}  // namespace

void setLabels(mlir::ModuleOp module, llvm::ArrayRef<std::string> labels) {
  if (llvm::all_of(labels, [](const std::string& label) { return label.empty(); })) return;
  llvm::SmallVector<llvm::StringRef> all(labels.begin(), labels.end());
  module->setAttr(kAttribute, mlir::Builder(module.getContext()).getStrArrayAttr(all));
}

llvm::StringRef labelOf(mlir::Operation* op) {
  auto module = op->getParentOfType<mlir::ModuleOp>();
  auto labels = module ? module->getAttrOfType<mlir::ArrayAttr>(kAttribute) : mlir::ArrayAttr();
  const auto nodes = sourceNodes(op);
  if (!labels || nodes.empty()) return "";
  const mlir::Attribute first = labels[static_cast<size_t>(nodes.front())];
  const bool same = llvm::all_of(nodes, [&](int64_t node) { return labels[static_cast<size_t>(node)] == first; });
  return same ? llvm::cast<mlir::StringAttr>(first).getValue() : "";
}

}  // namespace qx::mfuse
