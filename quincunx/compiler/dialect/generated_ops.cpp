// The operations that mlir-tblgen writes: a translation unit of their own, because they take the longest to compile.
#include "mlir/IR/Builders.h"
#include "quincunx/compiler/dialect/mfuse.h"

#define GET_OP_CLASSES
#include "quincunx/compiler/dialect/mfuse_ops.cpp.inc"
