// The dialect, its attributes and its enumerations. docs/fusion-dialect.md explains them for people.
#ifndef QUINCUNX_COMPILER_DIALECT_MFUSE_DIALECT_TD
#define QUINCUNX_COMPILER_DIALECT_MFUSE_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"

def MFuse_Dialect : Dialect {
  let name = "mfuse";
  let cppNamespace = "::qx::mfuse";
  let summary = "Tensor programs at the level of PyTorch's core operators";
  let description = [{
    Values are tensors without strides: an operation never writes to what it reads. The size of a dynamic dimension is
    an affine expression over the graph's symbols, held by the tensor's encoding:
    `tensor<?x64xf32, affine_map<()[s0, s1] -> (s0, 64)>>`; two types are equal only if their symbolic sizes are. Python
    scalars are values of type `f64` or `i64` (`mfuse.scalar`, `mfuse.size`), so that they keep their precision beside
    half-precision tensors.

    Arithmetic on `f16` and `bf16` happens in `f32` and is rounded once, where the operation's result is stored.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
}

def MFuse_OriginAttr : AttrDef<MFuse_Dialect, "Origin"> {
  let mnemonic = "origin";
  let summary = "Where an operation comes from in the graph::Graph that was imported";
  let description = [{
    Metadata of a fused location: `nodes` are the indices of the source nodes that the operation stands for, `values` the
    ids of the source values that equal its results, one a result, -1 where there is none. On a block argument `values`
    has one entry. Rewrites merge it (origin.h).
  }];
  let parameters = (ins "::mlir::DenseI64ArrayAttr":$nodes, "::mlir::DenseI64ArrayAttr":$values);
  let assemblyFormat = "`<` `nodes` `=` $nodes `,` `values` `=` $values `>`";
}

class MFuse_Case<string name, int value> : I32EnumAttrCase<name, value>;

def MFuse_UnaryKind : I32EnumAttr<"UnaryKind", "an elementwise function of one operand", [
    MFuse_Case<"neg", 0>, MFuse_Case<"abs", 1>, MFuse_Case<"sign", 2>, MFuse_Case<"exp", 3>, MFuse_Case<"exp2", 4>,
    MFuse_Case<"expm1", 5>, MFuse_Case<"log", 6>, MFuse_Case<"log2", 7>, MFuse_Case<"log1p", 8>,
    MFuse_Case<"sqrt", 9>, MFuse_Case<"rsqrt", 10>, MFuse_Case<"reciprocal", 11>, MFuse_Case<"sin", 12>,
    MFuse_Case<"cos", 13>, MFuse_Case<"tanh", 14>, MFuse_Case<"erf", 15>, MFuse_Case<"sigmoid", 16>,
    MFuse_Case<"relu", 17>, MFuse_Case<"floor", 18>, MFuse_Case<"ceil", 19>, MFuse_Case<"round", 20>,
    MFuse_Case<"trunc", 21>, MFuse_Case<"bitwise_not", 22>, MFuse_Case<"isnan", 23>, MFuse_Case<"isinf", 24>,
    // Composites: x * sigmoid(x); 0.5 x (1 + erf(x / sqrt 2)); 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));
    // x * sigmoid(1.702 x).
    MFuse_Case<"silu", 32>, MFuse_Case<"gelu_erf", 33>, MFuse_Case<"gelu_tanh", 34>, MFuse_Case<"gelu_quick", 35>]> {
  let cppNamespace = "::qx::mfuse";
}

def MFuse_BinaryKind : I32EnumAttr<"BinaryKind", "an elementwise function of two operands", [
    MFuse_Case<"add", 0>, MFuse_Case<"sub", 1>, MFuse_Case<"mul", 2>, MFuse_Case<"div", 3>,
    MFuse_Case<"floor_div", 4>, MFuse_Case<"trunc_div", 5>, MFuse_Case<"fmod", 6>, MFuse_Case<"remainder", 7>,
    MFuse_Case<"pow", 8>, MFuse_Case<"maximum", 9>, MFuse_Case<"minimum", 10>, MFuse_Case<"bitwise_and", 11>,
    MFuse_Case<"bitwise_or", 12>, MFuse_Case<"bitwise_xor", 13>, MFuse_Case<"atan2", 14>,
    // Composites: the activation of the left operand times the right one.
    MFuse_Case<"swiglu", 32>, MFuse_Case<"geglu_erf", 33>, MFuse_Case<"geglu_tanh", 34>]> {
  let cppNamespace = "::qx::mfuse";
}

def MFuse_Predicate : I32EnumAttr<"Predicate", "a comparison", [
    MFuse_Case<"eq", 0>, MFuse_Case<"ne", 1>, MFuse_Case<"lt", 2>, MFuse_Case<"le", 3>, MFuse_Case<"gt", 4>,
    MFuse_Case<"ge", 5>]> {
  let cppNamespace = "::qx::mfuse";
}

def MFuse_ReduceKind : I32EnumAttr<"ReduceKind", "a reduction", [
    MFuse_Case<"sum", 0>, MFuse_Case<"mean", 1>, MFuse_Case<"max", 2>, MFuse_Case<"min", 3>, MFuse_Case<"prod", 4>,
    MFuse_Case<"any", 5>, MFuse_Case<"all", 6>]> {
  let cppNamespace = "::qx::mfuse";
}

def MFuse_RopeStyle : I32EnumAttr<"RopeStyle", "which elements rotary embedding turns together", [
    // (x[i], x[i + d/2]), or (x[2i], x[2i + 1]).
    MFuse_Case<"half", 0>, MFuse_Case<"interleaved", 1>]> {
  let cppNamespace = "::qx::mfuse";
}

#endif
