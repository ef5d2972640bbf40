// Operators that make tensors from numbers.
#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

bool full(NodeImporter& node, mlir::Value value) {
  auto type = node.resultType(0);
  if (!value || !type || llvm::isa<mlir::ComplexType>(type.getElementType())) return false;
  if (value.getType().isF64() && !llvm::isa<mlir::FloatType>(type.getElementType())) return false;
  return node.finish(0, mfuse::FullOp::create(node.builder(), node.location(), type, value));
}

bool filled(NodeImporter& node, int64_t value) {
  mlir::TypedAttr attribute = node.builder().getI64IntegerAttr(value);
  return full(node, mfuse::ScalarOp::create(node.builder(), node.location(), attribute.getType(), attribute));
}

bool convertArange(NodeImporter& node) {
  auto type = node.resultType(0);
  mlir::Value start = node.scalar(0), step = node.scalar(2);
  if (!type || type.getRank() != 1 || !start || !step) return false;
  bool isFloat = llvm::isa<mlir::FloatType>(type.getElementType());
  if (!isFloat && (!start.getType().isInteger(64) || !step.getType().isInteger(64))) return false;
  return node.finish(0, mfuse::IotaOp::create(node.builder(), node.location(), type, start, step));
}

}  // namespace

void addSourceConverters(ConverterTable& table) {
  for (const char* name : {"full.default", "full_like.default", "fill.Scalar"}) {
    table["aten." + std::string(name)] = [](NodeImporter& n) { return full(n, n.scalar(1)); };
  }
  table["aten.new_full.default"] = [](NodeImporter& n) { return full(n, n.scalar(2)); };
  table["aten.scalar_tensor.default"] = [](NodeImporter& n) { return full(n, n.scalar(0)); };
  for (const char* name : {"zeros.default", "zeros_like.default", "new_zeros.default"}) {
    table["aten." + std::string(name)] = [](NodeImporter& n) { return filled(n, 0); };
  }
  for (const char* name : {"ones.default", "ones_like.default", "new_ones.default"}) {
    table["aten." + std::string(name)] = [](NodeImporter& n) { return filled(n, 1); };
  }
  table["aten.arange.start_step"] = convertArange;
}

}  // namespace qx::compiler
