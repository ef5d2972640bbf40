// Shapes whose sizes may be affine in the graph's symbols, held by a tensor type's encoding.
#pragma once

#include <string>

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinTypes.h"
#include "quincunx/base/dtype.h"

namespace qx::mfuse {

// The size of dimension `dim`: a constant, an affine expression of the graph's symbols, or null if the type has a
// dynamic size without an encoding. Equal expressions are one pointer, so == compares sizes.
mlir::AffineExpr dimSize(mlir::RankedTensorType type, int64_t dim);
llvm::SmallVector<mlir::AffineExpr> dimSizes(mlir::RankedTensorType type);

// A tensor of these sizes; dynamic ones are kept in the encoding, over `num_symbols` symbols.
mlir::RankedTensorType tensorType(llvm::ArrayRef<mlir::AffineExpr> sizes, unsigned numSymbols, mlir::Type element);
// The same shape (and encoding) with another element type.
mlir::RankedTensorType withElementType(mlir::RankedTensorType type, mlir::Type element);
// How many symbols the type's encoding speaks of; 0 without one.
unsigned numSymbols(mlir::RankedTensorType type);

// Whether sizes are surely equal, and whether they may be (differ only in what is not known).
bool sameShape(mlir::RankedTensorType a, mlir::RankedTensorType b);
bool mayBeEqual(mlir::RankedTensorType a, int64_t dimA, mlir::RankedTensorType b, int64_t dimB);
// Whether `from` broadcasts to `to`: aligned at the end, each size equal or 1. Unknown sizes are given the doubt.
bool broadcastsTo(mlir::RankedTensorType from, mlir::RankedTensorType to);

// Element types. Signed and boolean dtypes are signless integers, unsigned ones uiN. Null where MLIR has no such type.
mlir::Type elementType(mlir::MLIRContext* context, DType dtype);
Result<DType> dtypeOf(mlir::Type element);

}  // namespace qx::mfuse
