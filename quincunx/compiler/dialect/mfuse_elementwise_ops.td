// Operations that compute each element of the result from the elements at its place.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_ELEMENTWISE_OPS_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_ELEMENTWISE_OPS_TD

include "quincunx/compiler/dialect/mfuse_base.td"

def MFuse_UnaryOp : MFuse_PureOp<"unary", [MFuse_Elementwise]> {
  let summary = "a function of one operand";
  let description = [{
    Constraints: E1 to E3 of traits.h, and
    * (C1) the result's element type is the operand's; for `isnan` and `isinf` it is i1.
    * (C2) `neg`, `abs`, `sign`, `relu`, `isnan` and `isinf` take any number, `bitwise_not` integers and booleans, all
      others floating-point elements.
  }];
  let arguments = (ins MFuse_UnaryKind:$kind, MFuse_Tensor:$input);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$kind $input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def MFuse_BinaryOp : MFuse_PureOp<"binary", [MFuse_Elementwise]> {
  let summary = "a function of two operands, with broadcasting";
  let description = [{
    Constraints: E1 to E3 of traits.h, and
    * (C1) the result's element type is that of the tensor operands.
    * (C2) a scalar of type f64 goes only with floating-point tensors.
    * (C3) `bitwise_*` take integers and booleans; `div`, `atan2` and the composites floating-point elements.
  }];
  let arguments = (ins MFuse_BinaryKind:$kind, MFuse_TensorOrScalar:$lhs, MFuse_TensorOrScalar:$rhs);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$kind $lhs `,` $rhs attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def MFuse_CompareOp : MFuse_PureOp<"compare", [MFuse_Elementwise]> {
  let summary = "a comparison of two operands, with broadcasting";
  let description = [{
    Constraints: E1 to E3 of traits.h, and
    * (C1) the result's element type is i1.
    * (C2) a scalar of type f64 goes only with floating-point tensors.
  }];
  let arguments = (ins MFuse_Predicate:$predicate, MFuse_TensorOrScalar:$lhs, MFuse_TensorOrScalar:$rhs);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$predicate $lhs `,` $rhs attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def MFuse_SelectOp : MFuse_PureOp<"select", [MFuse_Elementwise]> {
  let summary = "the second operand where the first is true, else the third, with broadcasting";
  let description = [{
    Constraints: E1 and E2 of traits.h, and
    * (C1) `condition` is a tensor of i1.
    * (C2) the tensors among `on_true` and `on_false` have the result's element type, and a scalar of type f64 goes
      only with floating-point results.
  }];
  let arguments = (ins MFuse_Tensor:$condition, MFuse_TensorOrScalar:$on_true, MFuse_TensorOrScalar:$on_false);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$condition `,` $on_true `,` $on_false attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def MFuse_CastOp : MFuse_PureOp<"cast", [MFuse_Elementwise]> {
  let summary = "the same values in another element type, as torch.Tensor.to converts";
  let description = [{
    Constraints: E1 and E2 of traits.h, and
    * (C1) the shapes are equal.
  }];
  let arguments = (ins MFuse_Tensor:$input);
  let results = (outs MFuse_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif
