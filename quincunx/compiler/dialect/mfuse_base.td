// What the operation files share: operand types, traits and base classes.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_BASE_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_BASE_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "quincunx/compiler/dialect/mfuse_dialect.td"

// A tensor of known rank. Rank 0 is a tensor with one element, not a scalar.
def MFuse_Tensor : Type<AnyRankedTensor.predicate, "tensor of known rank", "::mlir::RankedTensorType">;
def MFuse_FloatTensor : Type<RankedTensorOf<[AnyFloat]>.predicate, "tensor of floating-point elements",
    "::mlir::RankedTensorType">;
// A Python scalar.
def MFuse_Scalar : AnyTypeOf<[F64, I64], "scalar of type f64 or i64">;
def MFuse_TensorOrScalar : AnyTypeOf<[MFuse_Tensor, MFuse_Scalar], "tensor of known rank, or scalar">;

// Verified by the traits in traits.h, which state the numbered constraints E1 to E4.
def MFuse_Elementwise : NativeOpTrait<"Elementwise"> {
  let cppNamespace = "::qx::mfuse";
}
// A tensor is only another arrangement of the operand's elements.
def MFuse_Rearrange : NativeOpTrait<"Rearrange"> {
  let cppNamespace = "::qx::mfuse";
}
// One operation for what a pattern found; transforms/decompose_composites.cpp states it in primitive operations.
def MFuse_Composite : NativeOpTrait<"Composite"> {
  let cppNamespace = "::qx::mfuse";
}

class MFuse_Op<string mnemonic, list<Trait> traits = []> : Op<MFuse_Dialect, mnemonic, traits>;
class MFuse_PureOp<string mnemonic, list<Trait> traits = []> : MFuse_Op<mnemonic, !listconcat([Pure], traits)>;

#endif
