// Operations that sum over elements: reductions and matrix products.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_CONTRACTION_OPS_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_CONTRACTION_OPS_TD

include "quincunx/compiler/dialect/mfuse_base.td"

def MFuse_ReduceOp : MFuse_PureOp<"reduce"> {
  let summary = "a reduction over some dimensions";
  let description = [{
    Constraints:
    * (C1) `dims` are strictly increasing and in [0, rank).
    * (C2) the result's shape is the operand's with `dims` removed, or with size 1 there under `keepdim`.
    * (C3) the result's element type is the operand's; for `any` and `all` both are i1; `mean` takes floating point.
  }];
  let arguments = (ins MFuse_ReduceKind:$kind, MFuse_Tensor:$input, DenseI64ArrayAttr:$dims, UnitAttr:$keepdim);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = [{
    $kind $input `dims` $dims (`keepdim` $keepdim^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def MFuse_VarianceOp : MFuse_PureOp<"variance"> {
  let summary = "sum((x - mean(x))^2) / (count - correction) over some dimensions";
  let description = [{
    Constraints: C1 and C2 of `mfuse.reduce`, and
    * (C3) the element types are equal and floating point.
  }];
  let arguments = (ins MFuse_FloatTensor:$input, DenseI64ArrayAttr:$dims, F64Attr:$correction, UnitAttr:$keepdim);
  let results = (outs MFuse_FloatTensor:$result);
  let assemblyFormat = [{
    $input `dims` $dims `correction` $correction (`keepdim` $keepdim^)? attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def MFuse_MatmulOp : MFuse_PureOp<"matmul", [AttrSizedOperandSegments]> {
  let summary = "activation(scale * (lhs @ rhs) + bias) * multiplier + residual over the last two dimensions";
  let description = [{
    The epilogue happens before the result is rounded to its element type. `transpose_*` swaps an operand's last two
    dimensions first.

    Constraints:
    * (C1) both operands have rank 2 or more, and the sizes that are summed over are equal.
    * (C2) `rhs` has rank 2, or the leading sizes of `lhs` and `rhs` are equal.
    * (C3) the result's shape is the leading sizes of `lhs`, rows, columns.
    * (C4) the element types of all tensors are equal and floating point.
    * (C5) `bias` has rank 1 and as many elements as there are columns.
    * (C6) `multiplier` and `residual` have the result's shape.
    * (C7) `activation` is relu, tanh, sigmoid, silu or a gelu.
  }];
  let arguments = (ins MFuse_FloatTensor:$lhs, MFuse_FloatTensor:$rhs, Optional<MFuse_FloatTensor>:$bias,
      Optional<MFuse_FloatTensor>:$multiplier, Optional<MFuse_FloatTensor>:$residual, UnitAttr:$transpose_lhs,
      UnitAttr:$transpose_rhs, OptionalAttr<MFuse_UnaryKind>:$activation, OptionalAttr<F64Attr>:$scale);
  let results = (outs MFuse_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs (`transposed` $transpose_lhs^)? `,` $rhs (`transposed` $transpose_rhs^)? (`scale` $scale^)? (`bias` $bias^)?
    (`activation` $activation^)? (`multiplier` $multiplier^)? (`residual` $residual^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif
