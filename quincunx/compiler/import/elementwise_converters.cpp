// Arithmetic, comparisons, choices and conversions, with PyTorch's type promotion.
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::Predicate;
using mfuse::UnaryKind;

bool isFloat(mlir::Type type) { return llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type)); }
bool isScalar(mlir::Value value) { return !llvm::isa<mlir::RankedTensorType>(value.getType()); }

// The operands of an operation whose result has the promoted type: tensors are cast to it.
bool promote(NodeImporter& node, mlir::Value& lhs, mlir::Value& rhs) {
  if (!lhs || !rhs || !node.resultType(0)) return false;
  mlir::Type element = node.resultElement();
  lhs = node.cast(lhs, element);
  rhs = node.cast(rhs, element);
  if (!lhs || !rhs) return false;
  bool fits = isFloat(element) || (!lhs.getType().isF64() && !rhs.getType().isF64());
  return fits && !(isScalar(lhs) && isScalar(rhs)) && !llvm::isa<mlir::ComplexType>(element);
}

bool convertBinary(NodeImporter& node, BinaryKind kind) {
  mlir::Value lhs = node.tensorOrScalar(0), rhs = node.tensorOrScalar(1);
  if (!promote(node, lhs, rhs)) return false;
  bool bitwise = kind == BinaryKind::bitwise_and || kind == BinaryKind::bitwise_or || kind == BinaryKind::bitwise_xor;
  // Products and extremes of booleans have no arithmetic to speak of: left alone.
  return (bitwise || !node.resultElement().isInteger(1)) && node.finish(0, node.binary(kind, lhs, rhs));
}

// add, sub and rsub: self +- alpha * other.
bool convertSum(NodeImporter& node, BinaryKind kind, bool reversed) {
  mlir::Value self = node.tensorOrScalar(0), other = node.tensorOrScalar(1);
  if (reversed) std::swap(self, other);
  if (!promote(node, self, other)) return false;
  mlir::Value& scaled = reversed ? self : other;
  // Booleans add as "or" and do not subtract.
  if (node.resultElement().isInteger(1)) return false;
  if (!node.missing(2) && node.number(2) != 1.0) {
    mlir::Value alpha = node.scalar(2);
    if (!alpha || reversed || isScalar(scaled) || (alpha.getType().isF64() && !isFloat(node.resultElement())))
      return false;
    self = node.wide(self);
    scaled = node.binary(BinaryKind::mul, node.wide(scaled), alpha);
  }
  return node.finish(0, node.binary(kind, self, other));
}

bool convertDivision(NodeImporter& node) {
  mlir::Value lhs = node.tensorOrScalar(0), rhs = node.tensorOrScalar(1);
  if (!promote(node, lhs, rhs)) return false;
  BinaryKind kind = BinaryKind::div;
  if (!node.missing(2)) {
    auto mode = node.string(2);
    if (mode != llvm::StringRef("floor") && mode != llvm::StringRef("trunc")) return false;
    kind = *mode == "floor" ? BinaryKind::floor_div : BinaryKind::trunc_div;
  }
  if (kind == BinaryKind::div && !isFloat(node.resultElement())) return false;
  return node.finish(0, node.binary(kind, lhs, rhs));
}

// self + value * (tensor1 op tensor2)
bool convertProductSum(NodeImporter& node, BinaryKind kind) {
  mlir::Value self = node.tensor(0), first = node.tensor(1), second = node.tensor(2);
  if (!self || !first || !second || !node.resultType(0) || !isFloat(node.resultType(0))) return false;
  for (mlir::Value* operand : {&self, &first, &second}) *operand = node.wide(node.cast(*operand, node.resultElement()));
  mlir::Value product = node.binary(kind, first, second);
  if (!node.missing(3) && node.number(3) != 1.0) product = node.binary(BinaryKind::mul, product, node.scalar(3));
  return node.finish(0, node.binary(BinaryKind::add, self, product));
}

// The type in which two tensors of different types are compared; null where PyTorch's rule needs more than this.
mlir::Type comparisonType(NodeImporter& node, mlir::Value lhs, mlir::Value rhs) {
  auto typeOf = [](mlir::Value value) { return llvm::dyn_cast<mlir::RankedTensorType>(value.getType()); };
  auto a = typeOf(lhs), b = typeOf(rhs);
  if (!a || !b) {
    mlir::Type element = (a ? a : b).getElementType();
    bool widen = !isFloat(element) && (lhs.getType().isF64() || rhs.getType().isF64());
    return widen ? node.builder().getF32Type() : element;
  }
  mlir::Type x = a.getElementType(), y = b.getElementType();
  if (x == y) return x;
  if (!x.isIntOrFloat() || !y.isIntOrFloat()) return {};
  bool oneIsZeroDimensional = (a.getRank() == 0) != (b.getRank() == 0);
  if (isFloat(x) != isFloat(y)) {
    if (oneIsZeroDimensional && isFloat(a.getRank() == 0 ? x : y)) return {};
    return isFloat(x) ? x : y;
  }
  if (oneIsZeroDimensional || x.isUnsignedInteger() || y.isUnsignedInteger()) return {};
  if (x.getIntOrFloatBitWidth() == y.getIntOrFloatBitWidth()) return node.builder().getF32Type();  // f16 and bf16
  return x.getIntOrFloatBitWidth() > y.getIntOrFloatBitWidth() ? x : y;
}

bool convertCompare(NodeImporter& node, Predicate predicate) {
  mlir::Value lhs = node.tensorOrScalar(0), rhs = node.tensorOrScalar(1);
  if (!lhs || !rhs || (isScalar(lhs) && isScalar(rhs))) return false;
  mlir::Type type = comparisonType(node, lhs, rhs);
  if (!type || llvm::isa<mlir::ComplexType>(type)) return false;
  return node.finish(0, node.compare(predicate, node.cast(lhs, type), node.cast(rhs, type)));
}

// True where an element is not zero.
mlir::Value truth(NodeImporter& node, mlir::Value value) {
  if (!value || isScalar(value)) return {};
  if (mlir::getElementTypeOrSelf(value.getType()).isInteger(1)) return value;
  mlir::TypedAttr zero = node.builder().getI64IntegerAttr(0);
  mlir::Value scalar = mfuse::ScalarOp::create(node.builder(), node.location(), zero.getType(), zero);
  return node.compare(Predicate::ne, value, scalar);
}

bool convertLogical(NodeImporter& node, BinaryKind kind) {
  return node.finish(0, node.binary(kind, truth(node, node.tensor(0)), truth(node, node.tensor(1))));
}

bool convertSelect(NodeImporter& node, size_t condition, size_t onTrue, size_t onFalse) {
  if (!node.resultType(0) || !node.tensor(condition)) return false;
  mlir::Type element = node.resultElement();
  mlir::Value chosen = node.cast(node.tensorOrScalar(onTrue), element),
              other = node.cast(node.tensorOrScalar(onFalse), element);
  if (!chosen || !other || (!isFloat(element) && (chosen.getType().isF64() || other.getType().isF64()))) return false;
  return node.finish(0, node.select(truth(node, node.tensor(condition)), chosen, other, element));
}

bool convertClamp(NodeImporter& node, size_t low, size_t high) {
  if (!node.resultType(0) || (node.missing(low) && node.missing(high))) return false;
  mlir::Value value = node.cast(node.tensor(0), node.resultElement());
  for (auto [index, kind] : {std::pair(low, BinaryKind::maximum), std::pair(high, BinaryKind::minimum)}) {
    if (node.missing(index)) continue;
    mlir::Value bound = node.cast(node.tensorOrScalar(index), node.resultElement());
    if (!bound || (bound.getType().isF64() && !isFloat(node.resultElement()))) return false;
    value = node.binary(kind, value, bound);
  }
  return node.finish(0, value);
}

bool convertUnary(NodeImporter& node, UnaryKind kind) {
  mlir::Value input = node.tensor(0);
  if (!input || !node.resultType(0)) return false;
  bool test = kind == UnaryKind::isnan || kind == UnaryKind::isinf;
  return node.finish(0, node.unary(kind, test ? input : node.cast(input, node.resultElement())));
}

void addTables(ConverterTable& table) {
  const std::pair<const char*, UnaryKind> unaries[] = {
      {"neg", UnaryKind::neg},     {"abs", UnaryKind::abs},         {"sign", UnaryKind::sign},
      {"exp", UnaryKind::exp},     {"exp2", UnaryKind::exp2},       {"expm1", UnaryKind::expm1},
      {"log", UnaryKind::log},     {"log2", UnaryKind::log2},       {"log1p", UnaryKind::log1p},
      {"sqrt", UnaryKind::sqrt},   {"rsqrt", UnaryKind::rsqrt},     {"reciprocal", UnaryKind::reciprocal},
      {"sin", UnaryKind::sin},     {"cos", UnaryKind::cos},         {"tanh", UnaryKind::tanh},
      {"erf", UnaryKind::erf},     {"sigmoid", UnaryKind::sigmoid}, {"relu", UnaryKind::relu},
      {"isnan", UnaryKind::isnan}, {"isinf", UnaryKind::isinf},     {"bitwise_not", UnaryKind::bitwise_not}};
  for (auto [name, kind] : unaries) {
    table["aten." + std::string(name) + ".default"] = [kind = kind](NodeImporter& node) {
      return convertUnary(node, kind);
    };
  }
  // Rounding leaves integers as they are.
  const std::pair<const char*, UnaryKind> roundings[] = {
      {"floor", UnaryKind::floor}, {"ceil", UnaryKind::ceil}, {"round", UnaryKind::round}, {"trunc", UnaryKind::trunc}};
  for (auto [name, kind] : roundings) {
    table["aten." + std::string(name) + ".default"] = [kind = kind](NodeImporter& node) {
      return node.resultType(0) && isFloat(node.resultType(0)) && convertUnary(node, kind);
    };
  }
  const std::pair<const char*, BinaryKind> binaries[] = {{"mul.Tensor", BinaryKind::mul},
                                                         {"mul.Scalar", BinaryKind::mul},
                                                         {"fmod.Tensor", BinaryKind::fmod},
                                                         {"fmod.Scalar", BinaryKind::fmod},
                                                         {"remainder.Tensor", BinaryKind::remainder},
                                                         {"remainder.Scalar", BinaryKind::remainder},
                                                         {"pow.Tensor_Tensor", BinaryKind::pow},
                                                         {"pow.Tensor_Scalar", BinaryKind::pow},
                                                         {"pow.Scalar", BinaryKind::pow},
                                                         {"maximum.default", BinaryKind::maximum},
                                                         {"minimum.default", BinaryKind::minimum},
                                                         {"bitwise_and.Tensor", BinaryKind::bitwise_and},
                                                         {"bitwise_and.Scalar", BinaryKind::bitwise_and},
                                                         {"bitwise_or.Tensor", BinaryKind::bitwise_or},
                                                         {"bitwise_or.Scalar", BinaryKind::bitwise_or},
                                                         {"bitwise_xor.Tensor", BinaryKind::bitwise_xor},
                                                         {"bitwise_xor.Scalar", BinaryKind::bitwise_xor},
                                                         {"atan2.default", BinaryKind::atan2}};
  for (auto [name, kind] : binaries) {
    table["aten." + std::string(name)] = [kind = kind](NodeImporter& node) { return convertBinary(node, kind); };
  }
  const std::pair<const char*, Predicate> predicates[] = {{"eq", Predicate::eq}, {"ne", Predicate::ne},
                                                          {"lt", Predicate::lt}, {"le", Predicate::le},
                                                          {"gt", Predicate::gt}, {"ge", Predicate::ge}};
  for (auto [name, predicate] : predicates) {
    for (const char* overload : {".Tensor", ".Scalar"}) {
      table["aten." + std::string(name) + overload] = [predicate = predicate](NodeImporter& node) {
        return convertCompare(node, predicate);
      };
    }
  }
}

}  // namespace

void addElementwiseConverters(ConverterTable& table) {
  addTables(table);
  for (const char* overload : {".Tensor", ".Scalar"}) {
    table["aten.add" + std::string(overload)] = [](NodeImporter& n) { return convertSum(n, BinaryKind::add, false); };
    table["aten.sub" + std::string(overload)] = [](NodeImporter& n) { return convertSum(n, BinaryKind::sub, false); };
    table["aten.rsub" + std::string(overload)] = [](NodeImporter& n) { return convertSum(n, BinaryKind::sub, true); };
    table["aten.div" + std::string(overload)] = convertDivision;
    table["aten.div" + std::string(overload) + "_mode"] = convertDivision;
  }
  table["aten.addcmul.default"] = [](NodeImporter& n) { return convertProductSum(n, BinaryKind::mul); };
  table["aten.addcdiv.default"] = [](NodeImporter& n) { return convertProductSum(n, BinaryKind::div); };
  table["aten.square.default"] = [](NodeImporter& n) {
    return n.finish(0, n.binary(BinaryKind::mul, n.tensor(0), n.tensor(0)));
  };
  table["aten.logical_not.default"] = [](NodeImporter& n) {
    return n.finish(0, n.unary(UnaryKind::bitwise_not, truth(n, n.tensor(0))));
  };
  table["aten.logical_and.default"] = [](NodeImporter& n) { return convertLogical(n, BinaryKind::bitwise_and); };
  table["aten.logical_or.default"] = [](NodeImporter& n) { return convertLogical(n, BinaryKind::bitwise_or); };
  table["aten.logical_xor.default"] = [](NodeImporter& n) { return convertLogical(n, BinaryKind::bitwise_xor); };
  for (const char* overload : {"self", "Scalar", "ScalarOther", "ScalarSelf"}) {
    table["aten.where." + std::string(overload)] = [](NodeImporter& n) { return convertSelect(n, 0, 1, 2); };
  }
  for (const char* overload : {"Scalar", "Tensor"}) {
    table["aten.masked_fill." + std::string(overload)] = [](NodeImporter& n) { return convertSelect(n, 1, 2, 0); };
  }
  for (const char* name : {"clamp.default", "clamp.Tensor", "hardtanh.default"}) {
    table["aten." + std::string(name)] = [](NodeImporter& n) { return convertClamp(n, 1, 2); };
  }
  for (const char* name : {"aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
                           "aten.type_as.default", "prims.convert_element_type.default"}) {
    table[name] = [](NodeImporter& n) {
      return n.resultType(0) && !llvm::isa<mlir::ComplexType>(n.resultElement()) && n.finish(0, n.tensor(0));
    };
  }
}

}  // namespace qx::compiler
