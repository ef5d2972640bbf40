#include "quincunx/compiler/dialect/origin.h"

#include <algorithm>

#include "mlir/IR/Operation.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::mfuse {
namespace {

// The first origin in a location; passes of MLIR may have wrapped it in a fused or call-site location.
OriginAttr findOrigin(mlir::Location location) {
  OriginAttr found;
  location->walk([&](mlir::Location part) {
    auto fused = llvm::dyn_cast<mlir::FusedLoc>(part);
    if (fused) found = llvm::dyn_cast_if_present<OriginAttr>(fused.getMetadata());
    return found ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  });
  return found;
}

}  // namespace

mlir::Location originLocation(mlir::MLIRContext* context, llvm::ArrayRef<int64_t> nodes,
                              llvm::ArrayRef<int64_t> values) {
  auto origin = OriginAttr::get(context, mlir::DenseI64ArrayAttr::get(context, nodes),
                                mlir::DenseI64ArrayAttr::get(context, values));
  return mlir::FusedLoc::get(context, {mlir::UnknownLoc::get(context)}, origin);
}

llvm::SmallVector<int64_t> sourceNodes(mlir::Location location) {
  OriginAttr origin = findOrigin(location);
  return origin ? llvm::SmallVector<int64_t>(origin.getNodes().asArrayRef()) : llvm::SmallVector<int64_t>();
}

llvm::SmallVector<int64_t> sourceNodes(mlir::Operation* op) { return sourceNodes(op->getLoc()); }

int64_t sourceValue(mlir::Value value) {
  unsigned index = 0;
  if (auto result = llvm::dyn_cast<mlir::OpResult>(value)) index = result.getResultNumber();
  mlir::Location location = index == 0 && llvm::isa<mlir::BlockArgument>(value)
                                ? llvm::cast<mlir::BlockArgument>(value).getLoc()
                                : value.getDefiningOp()->getLoc();
  OriginAttr origin = findOrigin(location);
  if (!origin || index >= static_cast<unsigned>(origin.getValues().size())) return -1;
  return origin.getValues()[index];
}

mlir::Location mergedOrigin(llvm::ArrayRef<mlir::Operation*> matched, llvm::ArrayRef<mlir::Value> replaced) {
  llvm::SmallVector<int64_t> nodes, values;
  bool any = false;
  for (mlir::Operation* op : matched) {
    any |= findOrigin(op->getLoc()) != nullptr;
    llvm::append_range(nodes, sourceNodes(op));
  }
  // A module that was written by hand has places in a file instead, of which the last operation's is the best.
  if (!any) return matched.back()->getLoc();
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (mlir::Value value : replaced) values.push_back(value ? sourceValue(value) : -1);
  return originLocation(matched.front()->getContext(), nodes, values);
}

mlir::Location innerOrigin(mlir::Operation* op) {
  if (!findOrigin(op->getLoc())) return op->getLoc();
  return originLocation(op->getContext(), sourceNodes(op), {});
}

}  // namespace qx::mfuse
