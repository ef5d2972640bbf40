// The mfuse dialect: what graph::Graph is imported into, patterns rewrite and code is generated from.
// The operations and their constraints are declared in mfuse_*_ops.td; docs/fusion-dialect.md shows them in use.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "quincunx/compiler/dialect/mfuse_dialect.h.inc"
#include "quincunx/compiler/dialect/mfuse_enums.h.inc"
#include "quincunx/compiler/dialect/traits.h"
#define GET_ATTRDEF_CLASSES
#include "quincunx/compiler/dialect/mfuse_attributes.h.inc"
#define GET_OP_CLASSES
#include "quincunx/compiler/dialect/mfuse_ops.h.inc"

namespace qx::mfuse {

// A unary or binary kind that is several primitive functions: silu, the gelus, swiglu, the geglus.
bool isComposite(UnaryKind kind);
bool isComposite(BinaryKind kind);

// The kinds that mfuse.matmul takes as its activation (C7).
bool isMatmulActivation(UnaryKind kind);

}  // namespace qx::mfuse
