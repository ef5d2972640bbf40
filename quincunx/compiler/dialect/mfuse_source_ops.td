// Operations without tensor operands, and what the dialect does not model.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_SOURCE_OPS_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_SOURCE_OPS_TD

include "mlir/IR/BuiltinAttributeInterfaces.td"
include "quincunx/compiler/dialect/mfuse_base.td"

def MFuse_ScalarOp : MFuse_PureOp<"scalar", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a Python scalar that is known";
  let arguments = (ins TypedAttrInterface:$value);
  let results = (outs MFuse_Scalar:$result);
  let assemblyFormat = "$value attr-dict";
  let hasFolder = 1;
}

def MFuse_SizeOp : MFuse_PureOp<"size"> {
  let summary = "an affine expression of the graph's symbols as a scalar";
  let description = [{
    Constraints:
    * (C1) `map` has no dimensions and one result.
  }];
  let arguments = (ins AffineMapAttr:$map);
  let results = (outs I64:$result);
  let assemblyFormat = "$map attr-dict";
  let hasVerifier = 1;
}

def MFuse_ConstantOp : MFuse_PureOp<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a small tensor that is known";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$value attr-dict";
  let hasFolder = 1;
}

def MFuse_WeightOp : MFuse_PureOp<"weight"> {
  let summary = "a constant of the source graph, by its index in Graph::constants";
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$index);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$index attr-dict `:` type($result)";
}

def MFuse_FullOp : MFuse_PureOp<"full"> {
  let summary = "a tensor whose elements all equal a scalar, rounded to the element type";
  let arguments = (ins MFuse_Scalar:$value);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` functional-type(operands, results)";
}

def MFuse_IotaOp : MFuse_PureOp<"iota"> {
  let summary = "start + i * step along the only dimension";
  let description = [{
    Constraints:
    * (C1) the result has rank 1.
  }];
  let arguments = (ins MFuse_Scalar:$start, MFuse_Scalar:$step);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$start `,` $step attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def MFuse_OpaqueOp : MFuse_Op<"opaque", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "an operator of the source graph that the dialect does not model, kept as it is";
  let description = [{
    `node` is the index of the source node, whose arguments it keeps; the operands are that node's tensors in the order of
    its arguments. `writes` marks an operator that changes one of its operands or has another effect (random numbers).
  }];
  let arguments = (ins StrAttr:$name, ConfinedAttr<I64Attr, [IntNonNegative]>:$node, UnitAttr:$writes,
      Variadic<MFuse_Tensor>:$inputs);
  let results = (outs Variadic<MFuse_Tensor>:$outputs);
  let assemblyFormat = [{
    $name `node` $node (`writes` $writes^)? `(` $inputs `)` attr-dict `:` functional-type(operands, results)
  }];
}

def MFuse_ReloadOp : MFuse_Op<"reload", [AllTypesMatch<["input", "result"]>]> {
  let summary = "what a value holds after an operator has written to its memory";
  let description = [{
    A use of `input` that stands after a writing `mfuse.opaque` in the source graph. `epoch` counts the writing operators
    before it, so that reads before and after one are never taken for equal.
  }];
  let arguments = (ins MFuse_Tensor:$input, ConfinedAttr<I64Attr, [IntPositive]>:$epoch);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$input `epoch` $epoch attr-dict `:` type($input)";
}

#endif
