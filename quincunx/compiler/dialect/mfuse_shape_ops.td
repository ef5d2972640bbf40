// Operations that arrange elements anew.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_SHAPE_OPS_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_SHAPE_OPS_TD

include "quincunx/compiler/dialect/mfuse_base.td"

def MFuse_ReshapeOp : MFuse_PureOp<"reshape", [MFuse_Rearrange]> {
  let summary = "the same elements in row-major order under another shape";
  let description = [{
    Constraints:
    * (C1) both shapes have the same number of elements, where both are known.
    * (C2) the element types are equal.
  }];
  let arguments = (ins MFuse_Tensor:$input);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MFuse_PermuteOp : MFuse_PureOp<"permute", [MFuse_Rearrange]> {
  let summary = "dimension i of the result is dimension permutation[i] of the operand";
  let description = [{
    Constraints:
    * (C1) `permutation` holds each of 0 to rank - 1 once.
    * (C2) the result's sizes are the operand's in that order.
    * (C3) the element types are equal.
  }];
  let arguments = (ins MFuse_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MFuse_BroadcastOp : MFuse_PureOp<"broadcast", [MFuse_Rearrange]> {
  let summary = "torch.Tensor.expand: dimensions are aligned at the end, those of size 1 are repeated";
  let description = [{
    Constraints:
    * (C1) the operand's shape broadcasts to the result's.
    * (C2) the element types are equal.
  }];
  let arguments = (ins MFuse_Tensor:$input);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MFuse_SliceOp : MFuse_PureOp<"slice", [MFuse_Rearrange]> {
  let summary = "elements start, start + step, ... along one dimension, as many as the result has";
  let description = [{
    Constraints:
    * (C1) 0 <= dim < rank.
    * (C2) start >= 0 and step >= 1.
    * (C3) the other sizes are equal, and start + (size - 1) * step is inside the operand where both are known.
    * (C4) the element types are equal.
  }];
  let arguments = (ins MFuse_Tensor:$input, I64Attr:$dim, I64Attr:$start, I64Attr:$step);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$input `dim` $dim `start` $start `step` $step attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MFuse_CatOp : MFuse_PureOp<"cat", [MFuse_Rearrange]> {
  let summary = "tensors one after the other along a dimension";
  let description = [{
    Constraints:
    * (C1) there is at least one operand, and 0 <= dim < rank.
    * (C2) ranks, element types and the sizes of the other dimensions are equal.
    * (C3) the result's size along `dim` is the sum of the operands', where all are known.
  }];
  let arguments = (ins Variadic<MFuse_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$inputs `dim` $dim attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif
