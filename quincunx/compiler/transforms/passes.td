// The passes of the compiler. Every fusion pattern is one pass and one file of its name.
#ifndef QUINCUNX_COMPILER_TRANSFORMS_PASSES_TD
#define QUINCUNX_COMPILER_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

// Guards that all patterns share, after the pattern's own: every operation inside has no user outside, and no operator
// writes to memory between the first of them and the last. Each candidate leaves a remark: "<pattern>: fused", or
// "<pattern>: " and the guard that failed.
class QxPattern<string name> : Pass<"qx-fuse-" # name, "::mlir::func::FuncOp"> {
  let dependentDialects = ["::qx::mfuse::MFuseDialect"];
}

def FuseSilu : QxPattern<"silu"> {
  let summary = "x * sigmoid(x)";
  let description = [{
    Spellings: `x * sigmoid(x)`; `x / (1 + exp(-x))`; `x * (1 / (1 + exp(-x)))`, with reciprocal or division.
  }];
}

def FuseGelu : QxPattern<"gelu"> {
  let summary = "the exact, tanh and quick forms of GELU";
  let description = [{
    Spellings, with the factors of every product in any order: `0.5 x (1 + erf(x / sqrt 2))`;
    `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` with pow(x, 3) or x * x * x;
    `0.5 x (1 + tanh(sqrt(2/pi) x (1 + 0.044715 x^2)))`; `x * sigmoid(1.702 x)`. Constants to 1e-7.
  }];
}

def FuseSoftmax : QxPattern<"softmax"> {
  let summary = "softmax and its logarithm";
  let description = [{
    Spellings, with d = x - amax(x, dim, keepdim): `exp(d) / sum(exp(d), dim, keepdim)`; `d - log(sum(exp(d), dim,
    keepdim))`. Without the maximum the results differ where exp overflows: not fused.
  }];
}

def FuseLayerNorm : QxPattern<"layer-norm"> {
  let summary = "layer normalisation with biased or unbiased variance";
  let description = [{
    Spellings, with d = x - mean(x, dims, keepdim) over trailing dims: `d * rsqrt(var + eps)`, `d / sqrt(var + eps)`,
    and `d / (sqrt(var) + eps)`; var is variance(x) or mean(d * d) or mean(pow(d, 2)). A following product with a weight
    and sum with a bias of the normalised shape join it.
  }];
}

def FuseRmsNorm : QxPattern<"rms-norm"> {
  let summary = "root-mean-square normalisation";
  let description = [{
    Spellings: `x * r` with r = rsqrt(m + eps), pow(m + eps, -0.5), 1 / sqrt(m + eps), or `x / sqrt(m + eps)`, and m the
    mean of x * x or pow(x, 2) over the last dim, or their sum divided by its size. A following product with a weight of
    that size joins it, and so does a pair of casts around it.
  }];
}

def FuseAddRmsNorm : QxPattern<"add-rms-norm"> {
  let summary = "a residual sum and its root-mean-square normalisation";
  let description = [{
    `rms_norm(a + b)` where a and b have one type. The sum may have other users: it is a result.
  }];
}

def FuseSwiglu : QxPattern<"swiglu"> {
  let summary = "silu(gate) * up and gelu(gate) * up";
  let description = [{
    The gate and up come from two products or are two halves of one; both have the result's type.
  }];
}

def FuseRope : QxPattern<"rope"> {
  let summary = "rotary position embedding";
  let description = [{
    `x * cos + rotate(x) * sin` with rotate(x) = cat(-x[d/2:], x[:d/2]) (half), or the pairs (-x[1], x[0]), ...
    (interleaved) through strided slices or through x of shape [..., d/2, 2]; and the half form over halves,
    `cat(x1 * c - x2 * s, x2 * c + x1 * s)`.
  }];
}

def FuseMatmulEpilogue : QxPattern<"matmul-epilogue"> {
  let summary = "transposes, scale, bias, activation, multiplier and residual become parts of the product";
  let description = [{
    A permute of the last two dims of an operand; a product with a number; a sum with a bias of one element a column;
    relu, tanh, sigmoid, silu or gelu; a product with a tensor of the result's type, or swiglu and geglu with the product
    as their gate; a sum with a tensor of the result's type. Each also across a reshape that keeps the columns.
  }];
  let options = [Option<"weightsOnly", "weights-only", "bool", /*default=*/"false",
      "Only f32 products with a weight (products.h), and only what our packed product computes">];
}

def DecomposeComposites : Pass<"qx-decompose-composites", "::mlir::func::FuncOp"> {
  let summary = "restates composite operations in primitive ones";
  let description = [{
    For targets that do not take them whole. Half-precision operands are computed on in f32, as the composites are.
  }];
  let options = [Option<"products", "products", "bool", /*default=*/"false",
      "Also take bias, activation and residual out of mfuse.matmul: the values between get no source value">];
  let dependentDialects = ["::qx::mfuse::MFuseDialect"];
}

#endif
