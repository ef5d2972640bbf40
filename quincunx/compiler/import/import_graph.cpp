#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/converters.h"
#include "quincunx/compiler/import/import.h"
#include "quincunx/compiler/import/memory_effects.h"

namespace qx::compiler {
namespace {

using graph::kNoValue;
using graph::ValueId;

class GraphImporter {
 public:
  GraphImporter(const graph::Graph& graph, mlir::MLIRContext& context)
      : graph_(graph),
        builder_(&context),
        values_(graph.values.size()),
        definedAt_(graph.values.size(), 0),
        owners_(memoryOwners(graph)),
        writtenAt_(graph.values.size(), 0) {
    writes_ = llvm::any_of(graph.nodes, [](const graph::Node& node) { return writtenValue(node) != kNoValue; });
  }

  Result<mlir::OwningOpRef<mlir::ModuleOp>> run() {
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(builder_.getUnknownLoc());
    builder_.setInsertionPointToEnd(module->getBody());
    QX_RETURN_IF_ERROR(openFunction());
    QX_RETURN_IF_ERROR(importConstants());
    for (int64_t index = 0; index < static_cast<int64_t>(graph_.nodes.size()); ++index) {
      QX_RETURN_IF_ERROR(importNode(index));
    }
    closeFunction();
    return module;
  }

 private:
  const graph::Value& sourceValue(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }

  // The graph's inputs and the states that start as zeros.
  std::vector<ValueId> argumentIds() const {
    std::vector<ValueId> ids = graph_.inputs;
    for (const graph::State& state : graph_.states) {
      bool isInput = llvm::is_contained(graph_.inputs, state.input) || sourceValue(state.input).constant >= 0;
      if (!isInput) ids.push_back(state.input);
    }
    return ids;
  }

  std::vector<ValueId> resultIds() const {
    std::vector<ValueId> ids = graph_.outputs;
    for (const graph::State& state : graph_.states) ids.push_back(state.output);
    return ids;
  }

  Result<mlir::RankedTensorType> typeOf(ValueId id) const {
    auto type = importType(sourceValue(id).type, graph_, builder_.getContext());
    if (type) return type;
    return invalid_argument("value %" + std::to_string(id) + " of graph \"" + graph_.name +
                            "\" has a negative size, expected sizes >= 0");
  }

  Status openFunction() {
    llvm::SmallVector<mlir::Type> arguments, results;
    const std::vector<ValueId> ids = argumentIds();
    for (ValueId id : ids) {
      QX_ASSIGN_OR_RETURN(mlir::RankedTensorType type, typeOf(id));
      arguments.push_back(type);
    }
    for (ValueId id : resultIds()) {
      QX_ASSIGN_OR_RETURN(mlir::RankedTensorType type, typeOf(id));
      results.push_back(type);
    }
    function_ = mlir::func::FuncOp::create(builder_, builder_.getUnknownLoc(), "main",
                                           builder_.getFunctionType(arguments, results));
    function_->setAttr("mfuse.symbols", symbols());
    mlir::Block* block = function_.addEntryBlock();
    for (auto [id, argument] : llvm::zip_equal(ids, block->getArguments())) {
      argument.setLoc(mfuse::originLocation(builder_.getContext(), {}, {id}));
      values_[static_cast<size_t>(id)] = argument;
    }
    builder_.setInsertionPointToEnd(block);
    return ok_status();
  }

  mlir::ArrayAttr symbols() {
    llvm::SmallVector<mlir::Attribute> all;
    for (const graph::Symbol& symbol : graph_.symbols) {
      all.push_back(builder_.getDictionaryAttr({builder_.getNamedAttr("name", builder_.getStringAttr(symbol.name)),
                                                builder_.getNamedAttr("min", builder_.getI64IntegerAttr(symbol.min)),
                                                builder_.getNamedAttr("max", builder_.getI64IntegerAttr(symbol.max))}));
    }
    return builder_.getArrayAttr(all);
  }

  // Numbers in tensors of rank 0 become known, so that patterns can check them; all else stays where it is.
  mlir::Value importConstant(const graph::Value& value, mlir::RankedTensorType type, mlir::Location location) {
    const graph::Constant& constant = graph_.constants[static_cast<size_t>(value.constant)];
    mlir::Type element = type.getElementType();
    if (type.getRank() == 0 && element.isIntOrFloat() && !element.isInteger(1) && constant.storage) {
      const char* data = reinterpret_cast<const char*>(constant.storage->data()) + constant.offset_bytes;
      llvm::ArrayRef<char> bytes(data, static_cast<size_t>(dtype_size_bytes(value.type.dtype)));
      auto elements = mlir::DenseElementsAttr::getFromRawBuffer(type, bytes);
      return mfuse::ConstantOp::create(builder_, location, type, elements);
    }
    return mfuse::WeightOp::create(builder_, location, type, static_cast<uint64_t>(value.constant));
  }

  Status importConstants() {
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values.size()); ++id) {
      if (sourceValue(id).constant < 0) continue;
      QX_ASSIGN_OR_RETURN(mlir::RankedTensorType type, typeOf(id));
      auto location = mfuse::originLocation(builder_.getContext(), {}, {id});
      values_[static_cast<size_t>(id)] = importConstant(sourceValue(id), type, location);
    }
    return ok_status();
  }

  // The operation's value for a source value, read anew if its memory has been written to since.
  mlir::Value lookup(ValueId id) {
    auto index = static_cast<size_t>(id);
    int64_t written = writtenAt_[static_cast<size_t>(owners_[index])];
    if (written > definedAt_[index]) {
      auto location = mfuse::originLocation(builder_.getContext(), {}, {id});
      values_[index] = mfuse::ReloadOp::create(builder_, location, values_[index].getType(), values_[index],
                                               static_cast<uint64_t>(written));
      definedAt_[index] = written;
    }
    return values_[index];
  }

  Status importNode(int64_t index) {
    const graph::Node& node = graph_.nodes[static_cast<size_t>(index)];
    mlir::Block* block = builder_.getInsertionBlock();
    // Reads come first, so that what a converter emitted in vain can be removed without them.
    for (const graph::Argument& argument : node.arguments) read(argument);
    mlir::Operation* last = block->empty() ? nullptr : &block->back();
    auto first = [&] { return last ? std::next(last->getIterator()) : block->begin(); };
    // Named, because the importer keeps a reference to it.
    auto look = [this](ValueId id) { return lookup(id); };
    NodeImporter importer(graph_, index, builder_, look);
    std::string reason;
    if (convert(importer, first, reason)) {
      for (auto [id, value] : llvm::zip_equal(node.results, importer.results())) {
        if (value) define(id, value);
      }
    } else {
      while (block->end() != first()) block->back().erase();
      QX_RETURN_IF_ERROR(importOpaque(importer, index, reason));
    }
    setOrigins(index, first(), block->end());
    if (ValueId written = writtenValue(node); written != kNoValue) {
      writtenAt_[static_cast<size_t>(owners_[static_cast<size_t>(written)])] = ++epoch_;
      for (ValueId result : node.results) definedAt_[static_cast<size_t>(result)] = epoch_;
    }
    return ok_status();
  }

  void read(const graph::Argument& argument) {
    const auto* one = std::get_if<graph::TensorRef>(&argument);
    if (one && one->id != kNoValue) lookup(one->id);
    const auto* list = std::get_if<std::vector<graph::TensorRef>>(&argument);
    for (const graph::TensorRef& reference : list ? *list : std::vector<graph::TensorRef>()) {
      if (reference.id != kNoValue) lookup(reference.id);
    }
  }

  // Converts a node; false, with a reason if one is worth telling, if it must stay opaque.
  template <typename First>
  bool convert(NodeImporter& importer, First first, std::string& reason) {
    const graph::Node& node = importer.node();
    auto converter = converters().find(node.op);
    if (converter == converters().end() || hasEffect(node)) return false;
    // A copy of memory that is written to later is no mere other name for it.
    if (writes_ && (node.op == "aten.clone.default" || node.op == "aten.lift_fresh_copy.default")) return false;
    mlir::ScopedDiagnosticHandler handler(builder_.getContext(), [&](mlir::Diagnostic& diagnostic) {
      reason = diagnostic.str();
      return mlir::success();
    });
    if (!converter->second(importer)) {
      reason = "mfuse does not model " + node.op + " with these arguments";
      return false;
    }
    mlir::Block* block = builder_.getInsertionBlock();
    for (mlir::Operation& op : llvm::make_range(first(), block->end())) {
      if (mlir::failed(mlir::verify(&op))) return false;
    }
    return true;
  }

  Status importOpaque(NodeImporter& importer, int64_t index, const std::string& reason) {
    const graph::Node& node = importer.node();
    llvm::SmallVector<mlir::Type> types;
    for (ValueId id : node.results) {
      QX_ASSIGN_OR_RETURN(mlir::RankedTensorType type, typeOf(id));
      types.push_back(type);
    }
    auto op = mfuse::OpaqueOp::create(builder_, importer.location(), types, node.op, static_cast<uint64_t>(index),
                                      hasEffect(node), importer.tensors());
    if (!reason.empty()) op->setAttr("mfuse.reason", builder_.getStringAttr(reason));
    for (auto [id, value] : llvm::zip_equal(node.results, op.getOutputs())) define(id, value);
    return ok_status();
  }

  void define(ValueId id, mlir::Value value) {
    values_[static_cast<size_t>(id)] = value;
    definedAt_[static_cast<size_t>(id)] = epoch_;
  }

  void setOrigins(int64_t index, mlir::Block::iterator first, mlir::Block::iterator last) {
    const graph::Node& node = graph_.nodes[static_cast<size_t>(index)];
    for (mlir::Operation& op : llvm::make_range(first, last)) {
      llvm::SmallVector<int64_t> ids;
      for (mlir::Value result : op.getResults()) {
        auto found =
            llvm::find_if(node.results, [&](ValueId id) { return values_[static_cast<size_t>(id)] == result; });
        ids.push_back(found == node.results.end() ? -1 : *found);
      }
      op.setLoc(mfuse::originLocation(builder_.getContext(), {index}, ids));
    }
  }

  void closeFunction() {
    llvm::SmallVector<mlir::Value> results;
    for (ValueId id : resultIds()) results.push_back(lookup(id));
    mlir::func::ReturnOp::create(builder_, builder_.getUnknownLoc(), results);
  }

  const graph::Graph& graph_;
  mlir::OpBuilder builder_;
  mlir::func::FuncOp function_;
  std::vector<mlir::Value> values_;
  // How many writing nodes came before a value was made or read anew, and before the last write to its memory.
  std::vector<int64_t> definedAt_;
  std::vector<ValueId> owners_;
  std::vector<int64_t> writtenAt_;
  int64_t epoch_ = 0;
  bool writes_ = false;
};

}  // namespace

void loadDialects(mlir::MLIRContext& context) { context.loadDialect<mfuse::MFuseDialect, mlir::func::FuncDialect>(); }

Result<mlir::OwningOpRef<mlir::ModuleOp>> importGraph(const graph::Graph& graph, mlir::MLIRContext& context) {
  QX_RETURN_IF_ERROR(graph::verify(graph));
  return GraphImporter(graph, context).run();
}

}  // namespace qx::compiler
