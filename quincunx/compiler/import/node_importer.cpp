#include "quincunx/compiler/import/node_importer.h"

#include "mlir/IR/AffineMap.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::compiler {
namespace {

using graph::Argument;
using graph::TensorRef;

template <typename T>
const T* get(const graph::Node& node, size_t index) {
  return index < node.arguments.size() ? std::get_if<T>(&node.arguments[index]) : nullptr;
}

mlir::RankedTensorType typeOf(mlir::Value value) { return llvm::dyn_cast<mlir::RankedTensorType>(value.getType()); }

}  // namespace

mlir::AffineExpr importDim(const graph::Dim& dim, mlir::MLIRContext* context) {
  if (dim.is_known()) return mlir::getAffineConstantExpr(dim.value, context);
  return mlir::getAffineSymbolExpr(dim.symbol, context) * dim.multiplier + dim.value;
}

mlir::RankedTensorType importType(const graph::TensorType& type, const graph::Graph& graph,
                                  mlir::MLIRContext* context) {
  mlir::Type element = mfuse::elementType(context, type.dtype);
  llvm::SmallVector<mlir::AffineExpr> sizes;
  for (const graph::Dim& dim : type.shape) {
    if (dim.is_known() && dim.value < 0) return {};
    sizes.push_back(importDim(dim, context));
  }
  return mfuse::tensorType(sizes, static_cast<unsigned>(graph.symbols.size()), element);
}

NodeImporter::NodeImporter(const graph::Graph& graph, int64_t node, mlir::OpBuilder& builder,
                           llvm::function_ref<mlir::Value(graph::ValueId)> lookup)
    : graph_(graph),
      node_(graph.nodes[static_cast<size_t>(node)]),
      builder_(builder),
      location_(mfuse::originLocation(builder.getContext(), {node}, {})),
      lookup_(lookup),
      results_(node_.results.size()) {}

llvm::SmallVector<mlir::Value> NodeImporter::tensors() const {
  llvm::SmallVector<mlir::Value> found;
  auto add = [&](const TensorRef& reference) {
    if (reference.id != graph::kNoValue) found.push_back(lookup_(reference.id));
  };
  for (const Argument& argument : node_.arguments) {
    if (const auto* one = std::get_if<TensorRef>(&argument)) add(*one);
    if (const auto* list = std::get_if<std::vector<TensorRef>>(&argument)) {
      for (const TensorRef& reference : *list) add(reference);
    }
  }
  return found;
}

bool NodeImporter::missing(size_t index) const {
  return index >= node_.arguments.size() || std::holds_alternative<std::monostate>(node_.arguments[index]);
}

mlir::Value NodeImporter::tensor(size_t index) const {
  const auto* reference = get<TensorRef>(node_, index);
  return reference && reference->id != graph::kNoValue ? lookup_(reference->id) : mlir::Value();
}

std::optional<llvm::SmallVector<mlir::Value>> NodeImporter::tensorList(size_t index) const {
  const auto* list = get<std::vector<TensorRef>>(node_, index);
  if (!list) return std::nullopt;
  llvm::SmallVector<mlir::Value> values;
  for (const TensorRef& reference : *list) {
    if (reference.id == graph::kNoValue) return std::nullopt;
    values.push_back(lookup_(reference.id));
  }
  return values;
}

std::optional<double> NodeImporter::number(size_t index) const {
  if (const auto* value = get<double>(node_, index)) return *value;
  if (const auto* value = get<bool>(node_, index)) return *value ? 1.0 : 0.0;
  if (auto value = integer(index)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<int64_t> NodeImporter::integer(size_t index) const {
  const auto* dim = get<graph::Dim>(node_, index);
  return dim && dim->is_known() ? std::optional(dim->value) : std::nullopt;
}

std::optional<bool> NodeImporter::boolean(size_t index) const {
  const auto* value = get<bool>(node_, index);
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<llvm::StringRef> NodeImporter::string(size_t index) const {
  const auto* value = get<std::string>(node_, index);
  return value ? std::optional(llvm::StringRef(*value)) : std::nullopt;
}

std::optional<llvm::SmallVector<int64_t>> NodeImporter::integers(size_t index) const {
  llvm::SmallVector<int64_t> values;
  if (auto one = integer(index)) return llvm::SmallVector<int64_t>{*one};
  const auto* list = get<std::vector<graph::Dim>>(node_, index);
  if (!list) return std::nullopt;
  for (const graph::Dim& dim : *list) {
    if (!dim.is_known()) return std::nullopt;
    values.push_back(dim.value);
  }
  return values;
}

mlir::Value NodeImporter::scalar(size_t index) {
  if (const auto* value = get<double>(node_, index)) return constant(*value);
  mlir::TypedAttr attribute;
  if (const auto* value = get<bool>(node_, index)) attribute = builder_.getI64IntegerAttr(*value);
  if (const auto* dim = get<graph::Dim>(node_, index)) {
    if (!dim->is_known()) {
      auto map =
          mlir::AffineMap::get(0, static_cast<unsigned>(graph_.symbols.size()), importDim(*dim, builder_.getContext()));
      return mfuse::SizeOp::create(builder_, location_, builder_.getI64Type(), map);
    }
    attribute = builder_.getI64IntegerAttr(dim->value);
  }
  return attribute ? mfuse::ScalarOp::create(builder_, location_, attribute.getType(), attribute) : mlir::Value();
}

mlir::Value NodeImporter::tensorOrScalar(size_t index) {
  mlir::Value value = tensor(index);
  return value ? value : scalar(index);
}

std::optional<llvm::SmallVector<int64_t>> NodeImporter::normalizeDims(llvm::ArrayRef<int64_t> dims, int64_t rank) {
  llvm::SmallVector<int64_t> normalized;
  for (int64_t dim : dims) {
    if (dim < -rank || dim >= rank) return std::nullopt;
    normalized.push_back(dim < 0 ? dim + rank : dim);
  }
  llvm::sort(normalized);
  if (std::adjacent_find(normalized.begin(), normalized.end()) != normalized.end()) return std::nullopt;
  return normalized;
}

mlir::RankedTensorType NodeImporter::resultType(size_t index) const {
  graph::ValueId id = index < node_.results.size() ? node_.results[index] : graph::kNoValue;
  if (id == graph::kNoValue) return {};
  const graph::Value& value = graph_.values[static_cast<size_t>(id)];
  return importType(value.type, graph_, builder_.getContext());
}

bool NodeImporter::isUsed(size_t index) const {
  graph::ValueId id = node_.results[index];
  if (llvm::is_contained(graph_.outputs, id)) return true;
  if (llvm::any_of(graph_.states, [&](const graph::State& state) { return state.output == id; })) return true;
  for (const graph::Node& other : graph_.nodes) {
    for (const Argument& argument : other.arguments) {
      const auto* one = std::get_if<TensorRef>(&argument);
      const auto* list = std::get_if<std::vector<TensorRef>>(&argument);
      if ((one && one->id == id) || (list && llvm::is_contained(*list, TensorRef{id}))) return true;
    }
  }
  return false;
}

mlir::Value NodeImporter::constant(double value) {
  mlir::TypedAttr attribute = builder_.getF64FloatAttr(value);
  return mfuse::ScalarOp::create(builder_, location_, attribute.getType(), attribute);
}

mlir::RankedTensorType NodeImporter::broadcast(llvm::ArrayRef<mlir::Value> operands, mlir::Type element) const {
  llvm::SmallVector<mlir::AffineExpr> sizes;
  for (mlir::Value operand : operands) {
    auto type = typeOf(operand);
    if (!type) continue;
    auto rank = static_cast<size_t>(type.getRank());
    while (sizes.size() < rank) sizes.insert(sizes.begin(), builder_.getAffineConstantExpr(1));
    for (size_t dim = 0; dim < rank; ++dim) {
      mlir::AffineExpr size = mfuse::dimSize(type, static_cast<int64_t>(dim));
      mlir::AffineExpr& known = sizes[sizes.size() - rank + dim];
      bool isConstant = llvm::isa_and_present<mlir::AffineConstantExpr>(size);
      auto one = llvm::dyn_cast_if_present<mlir::AffineConstantExpr>(known);
      if (type.getDimSize(static_cast<int64_t>(dim)) == 1 || size == known) continue;
      if (one && one.getValue() != 1) {
        // A symbol beside a size that is known has that size, or the verifier's eyes would be needed at run time.
        if (isConstant) return {};
        continue;
      }
      if (one || isConstant || !known) known = size;
    }
  }
  return mfuse::tensorType(sizes, static_cast<unsigned>(graph_.symbols.size()), element);
}

mlir::Value NodeImporter::unary(mfuse::UnaryKind kind, mlir::Value input) {
  if (!input) return {};
  auto type = typeOf(input);
  bool test = kind == mfuse::UnaryKind::isnan || kind == mfuse::UnaryKind::isinf;
  return mfuse::UnaryOp::create(builder_, location_, test ? mfuse::withElementType(type, builder_.getI1Type()) : type,
                                kind, input);
}

mlir::Value NodeImporter::binary(mfuse::BinaryKind kind, mlir::Value lhs, mlir::Value rhs) {
  if (!lhs || !rhs) return {};
  auto type = typeOf(lhs) ? typeOf(lhs) : typeOf(rhs);
  auto result = type ? broadcast({lhs, rhs}, type.getElementType()) : type;
  return result ? mfuse::BinaryOp::create(builder_, location_, result, kind, lhs, rhs) : mlir::Value();
}

mlir::Value NodeImporter::compare(mfuse::Predicate predicate, mlir::Value lhs, mlir::Value rhs) {
  if (!lhs || !rhs || (!typeOf(lhs) && !typeOf(rhs))) return {};
  auto result = broadcast({lhs, rhs}, builder_.getI1Type());
  return result ? mfuse::CompareOp::create(builder_, location_, result, predicate, lhs, rhs) : mlir::Value();
}

mlir::Value NodeImporter::select(mlir::Value condition, mlir::Value onTrue, mlir::Value onFalse, mlir::Type element) {
  if (!condition || !onTrue || !onFalse) return {};
  auto result = broadcast({condition, onTrue, onFalse}, element);
  return result ? mfuse::SelectOp::create(builder_, location_, result, condition, onTrue, onFalse) : mlir::Value();
}

mlir::Value NodeImporter::cast(mlir::Value input, mlir::Type element) {
  if (!input || !typeOf(input) || typeOf(input).getElementType() == element) return input;
  if (!typeOf(input).getElementType().isIntOrFloat() || !element.isIntOrFloat()) return {};
  return mfuse::CastOp::create(builder_, location_, mfuse::withElementType(typeOf(input), element), input);
}

mlir::Value NodeImporter::wide(mlir::Value input) {
  auto type = input ? llvm::dyn_cast<mlir::FloatType>(mlir::getElementTypeOrSelf(input.getType())) : nullptr;
  return type && type.getWidth() < 32 ? cast(input, builder_.getF32Type()) : input;
}

mlir::RankedTensorType NodeImporter::reducedType(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> dims,
                                                 bool keepdim) const {
  llvm::SmallVector<mlir::AffineExpr> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    if (!llvm::is_contained(dims, dim)) {
      sizes.push_back(mfuse::dimSize(type, dim));
    } else if (keepdim) {
      sizes.push_back(builder_.getAffineConstantExpr(1));
    }
  }
  return mfuse::tensorType(sizes, static_cast<unsigned>(graph_.symbols.size()), type.getElementType());
}

mlir::Value NodeImporter::reduce(mfuse::ReduceKind kind, mlir::Value input, llvm::ArrayRef<int64_t> dims,
                                 bool keepdim) {
  if (!input) return {};
  return mfuse::ReduceOp::create(builder_, location_, reducedType(typeOf(input), dims, keepdim), kind, input, dims,
                                 keepdim);
}

mlir::Value NodeImporter::variance(mlir::Value input, llvm::ArrayRef<int64_t> dims, double correction, bool keepdim) {
  if (!input) return {};
  return mfuse::VarianceOp::create(builder_, location_, reducedType(typeOf(input), dims, keepdim), input, dims,
                                   llvm::APFloat(correction), keepdim);
}

mlir::Value NodeImporter::reshape(mlir::Value input, mlir::RankedTensorType type) {
  if (!input || !type) return {};
  if (input.getType() == type) return input;
  return mfuse::ReshapeOp::create(builder_, location_, type, input);
}

bool NodeImporter::finish(size_t index, mlir::Value value) {
  auto wanted = resultType(index);
  if (!value || !typeOf(value) || !wanted) return false;
  value = cast(value, wanted.getElementType());
  if (!value) return false;
  auto type = typeOf(value);
  if (type != wanted) {
    if (type.getRank() != wanted.getRank()) return false;
    for (int64_t dim = 0; dim < type.getRank(); ++dim) {
      if (!mfuse::mayBeEqual(type, dim, wanted, dim)) return false;
    }
    // Sizes that PyTorch knows to be equal although their expressions differ: the graph's word counts.
    if (llvm::is_contained(tensors(), value)) {
      value = mfuse::ReshapeOp::create(builder_, location_, wanted, value);
    } else {
      value.setType(wanted);
    }
  }
  results_[index] = value;
  return true;
}

}  // namespace qx::compiler
