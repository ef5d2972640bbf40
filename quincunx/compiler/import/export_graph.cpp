#include <cstring>

#include "llvm/ADT/DenseMap.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/import/graph_writer.h"
#include "quincunx/compiler/import/import.h"

namespace qx::compiler {
namespace {

using graph::TensorRef;
using graph::ValueId;

// A copy of the source node, reading what the operation's operands have become.
Status writeOpaque(GraphWriter& writer, mfuse::OpaqueOp op, const graph::Graph& source) {
  if (op.getNode() >= source.nodes.size()) {
    return invalid_argument("mfuse.opaque names node " + std::to_string(op.getNode()) + ", expected one of " +
                            std::to_string(source.nodes.size()));
  }
  graph::Node node = source.nodes[op.getNode()];
  if (node.results.size() != op.getNumResults())
    return invalid_argument("mfuse.opaque does not have its node's results");
  size_t next = 0;
  bool fits = true;
  auto replace = [&](TensorRef& reference) {
    if (reference.id == graph::kNoValue) return;
    fits &= next < op.getInputs().size();
    if (fits) reference.id = writer.value(op.getInputs()[next++]);
  };
  for (graph::Argument& argument : node.arguments) {
    if (auto* one = std::get_if<TensorRef>(&argument)) replace(*one);
    if (auto* list = std::get_if<std::vector<TensorRef>>(&argument)) {
      for (TensorRef& reference : *list) replace(reference);
    }
  }
  if (!fits || next != op.getInputs().size()) return invalid_argument("mfuse.opaque does not have its node's operands");
  return writer.add(node.op, std::move(node.arguments), op->getResults());
}

Status writeConstant(GraphWriter& writer, mfuse::ConstantOp op) {
  auto elements = llvm::dyn_cast<mlir::DenseElementsAttr>(op.getValue());
  mlir::Type element = op.getType().getElementType();
  if (!elements || element.isInteger(1)) return unimplemented("mfuse.constant holds elements that are not bytes");
  auto size = static_cast<int64_t>(element.getIntOrFloatBitWidth() / 8);
  int64_t count = op.getType().getNumElements();
  QX_ASSIGN_OR_RETURN(std::shared_ptr<Storage> storage, Storage::allocate(size * count));
  const char* bytes = elements.getRawData().data();
  for (int64_t index = 0; index < count; ++index) {
    std::memcpy(storage->mutable_data() + index * size, bytes + (elements.isSplat() ? 0 : index * size),
                static_cast<size_t>(size));
  }
  auto constant = static_cast<int32_t>(writer.graph().constants.size());
  writer.graph().constants.push_back({std::move(storage), 0});
  return writer.addConstant(op.getResult(), constant);
}

Status writeOperation(GraphWriter& writer, mlir::Operation& op, const graph::Graph& source) {
  // Scalars are written where they are read.
  if (llvm::isa<mfuse::ScalarOp, mfuse::SizeOp>(op)) return ok_status();
  if (auto reload = llvm::dyn_cast<mfuse::ReloadOp>(op)) {
    writer.alias(reload.getResult(), reload.getInput());
    return ok_status();
  }
  if (auto opaque = llvm::dyn_cast<mfuse::OpaqueOp>(op)) return writeOpaque(writer, opaque, source);
  if (auto constant = llvm::dyn_cast<mfuse::ConstantOp>(op)) return writeConstant(writer, constant);
  if (auto weight = llvm::dyn_cast<mfuse::WeightOp>(op)) {
    if (weight.getIndex() >= source.constants.size()) {
      return invalid_argument("mfuse.weight names constant " + std::to_string(weight.getIndex()) +
                              ", expected one of " + std::to_string(source.constants.size()));
    }
    return writer.addConstant(weight.getResult(), static_cast<int32_t>(weight.getIndex()));
  }
  if (op.hasTrait<mfuse::Elementwise>()) return writeElementwise(writer, op);
  return writeTensorOperation(writer, op);
}

// Values of the source graph that the module reads as arguments come back under their own names, states included.
Status writeStates(GraphWriter& writer, const graph::Graph& source, mlir::Operation* terminator) {
  llvm::DenseMap<int64_t, ValueId> written;
  for (ValueId id = 0; id < static_cast<ValueId>(writer.origins().size()); ++id) {
    if (writer.origins()[static_cast<size_t>(id)] >= 0)
      written.try_emplace(writer.origins()[static_cast<size_t>(id)], id);
  }
  size_t numOutputs = source.outputs.size();
  if (terminator->getNumOperands() != numOutputs + source.states.size()) {
    return invalid_argument("module returns " + std::to_string(terminator->getNumOperands()) + " values, expected " +
                            std::to_string(numOutputs + source.states.size()));
  }
  for (size_t index = 0; index < numOutputs; ++index) {
    writer.graph().outputs.push_back(writer.value(terminator->getOperand(static_cast<unsigned>(index))));
  }
  for (auto [index, state] : llvm::enumerate(source.states)) {
    auto input = written.find(state.input);
    if (input == written.end()) return internal_error("state \"" + state.name + "\" is not an argument of the module");
    ValueId output = writer.value(terminator->getOperand(static_cast<unsigned>(numOutputs + index)));
    writer.graph().states.push_back({state.name, input->second, output});
  }
  return ok_status();
}

}  // namespace

Result<graph::Graph> exportGraph(mlir::ModuleOp module, const graph::Graph& source) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>("main");
  if (!function || !function.getBody().hasOneBlock())
    return invalid_argument("module has no function @main of one block");
  GraphWriter writer(source);
  for (auto [index, argument] : llvm::enumerate(function.getArguments())) {
    QX_RETURN_IF_ERROR(writer.addArgument(argument, index < source.inputs.size()));
  }
  mlir::Block& block = function.getBody().front();
  for (mlir::Operation& op : block.without_terminator()) QX_RETURN_IF_ERROR(writeOperation(writer, op, source));
  QX_RETURN_IF_ERROR(writeStates(writer, source, block.getTerminator()));
  QX_RETURN_IF_ERROR(graph::verify(writer.graph()));
  return std::move(writer.graph());
}

}  // namespace qx::compiler
