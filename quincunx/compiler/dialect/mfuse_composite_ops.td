// What patterns produce beside the composite kinds of unary and binary operations. Inside, all is computed in f32 (f64
// for f64) and rounded once at the end.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_COMPOSITE_OPS_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_COMPOSITE_OPS_TD

include "quincunx/compiler/dialect/mfuse_base.td"

class MFuse_CompositeOp<string mnemonic, list<Trait> traits = []>
    : MFuse_PureOp<mnemonic, !listconcat([MFuse_Composite], traits)> {
  let hasVerifier = 1;
}

def MFuse_RmsNormOp : MFuse_CompositeOp<"rms_norm"> {
  let summary = "x / sqrt(mean(x^2) + eps) * weight over the last dimension";
  let description = [{
    Constraints:
    * (C1) the operand has rank 1 or more and the result's type.
    * (C2) `weight` has rank 1, the last dimension's size and the operand's element type.
    * (C3) eps is finite and not negative.
  }];
  let arguments = (ins MFuse_FloatTensor:$input, Optional<MFuse_FloatTensor>:$weight, F64Attr:$eps);
  let results = (outs MFuse_FloatTensor:$result);
  let assemblyFormat = [{
    $input (`weight` $weight^)? `eps` $eps attr-dict `:` functional-type(operands, results)
  }];
}

def MFuse_AddRmsNormOp : MFuse_CompositeOp<"add_rms_norm"> {
  let summary = "sum = x + residual, and rms_norm(sum)";
  let description = [{
    `sum` is rounded to its element type before the norm reads it.

    Constraints: those of `mfuse.rms_norm`, and
    * (C4) the operands and both results have one type.
  }];
  let arguments = (ins MFuse_FloatTensor:$input, MFuse_FloatTensor:$residual, Optional<MFuse_FloatTensor>:$weight,
      F64Attr:$eps);
  let results = (outs MFuse_FloatTensor:$result, MFuse_FloatTensor:$sum);
  let assemblyFormat = [{
    $input `,` $residual (`weight` $weight^)? `eps` $eps attr-dict `:` functional-type(operands, results)
  }];
}

def MFuse_LayerNormOp : MFuse_CompositeOp<"layer_norm", [AttrSizedOperandSegments]> {
  let summary = "(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimensions";
  let description = [{
    `num_dims` trailing dimensions are normalised. `correction` is subtracted from the variance's count. With
    `eps_outside`, eps is added to the standard deviation: (x - mean) / (sqrt(var) + eps).

    Constraints:
    * (C1) the operand has the result's type, and 1 <= num_dims <= rank.
    * (C2) `weight` and `bias` have the operand's last num_dims sizes and its element type.
    * (C3) eps is finite and not negative.
  }];
  let arguments = (ins MFuse_FloatTensor:$input, Optional<MFuse_FloatTensor>:$weight,
      Optional<MFuse_FloatTensor>:$bias, I64Attr:$num_dims, F64Attr:$eps, F64Attr:$correction, UnitAttr:$eps_outside);
  let results = (outs MFuse_FloatTensor:$result);
  let assemblyFormat = [{
    $input (`weight` $weight^)? (`bias` $bias^)? `num_dims` $num_dims `eps` $eps (`outside` $eps_outside^)?
    `correction` $correction attr-dict `:` functional-type(operands, results)
  }];
}

def MFuse_SoftmaxOp : MFuse_CompositeOp<"softmax"> {
  let summary = "exp(x - max(x)) / sum(exp(x - max(x))) along a dimension, or its logarithm";
  let description = [{
    Constraints:
    * (C1) the operand has the result's type, and 0 <= dim < rank.
  }];
  let arguments = (ins MFuse_FloatTensor:$input, I64Attr:$dim, UnitAttr:$logarithm);
  let results = (outs MFuse_FloatTensor:$result);
  let assemblyFormat = [{
    $input `dim` $dim (`log` $logarithm^)? attr-dict `:` functional-type(operands, results)
  }];
}

def MFuse_RopeOp : MFuse_CompositeOp<"rope"> {
  let summary = "rotary position embedding: x * cos + rotate(x) * sin along the last dimension";
  let description = [{
    With d = the last dimension's size, rotate(x) is cat(-x[d/2:], x[:d/2]) for `half`; for `interleaved` it is
    (-x[1], x[0], -x[3], x[2], ...).

    Constraints:
    * (C1) the operand has the result's type, and its last size is known and even.
    * (C2) `cos` and `sin` have equal types, the operand's element type and last size, and broadcast to its shape.
  }];
  let arguments = (ins MFuse_FloatTensor:$input, MFuse_FloatTensor:$cos, MFuse_FloatTensor:$sin,
      MFuse_RopeStyle:$style);
  let results = (outs MFuse_FloatTensor:$result);
  let assemblyFormat = "$style $input `,` $cos `,` $sin attr-dict `:` functional-type(operands, results)";
}

#endif
