// RUN: %qx-opt %s --qx-fuse-matmul-epilogue --verify-diagnostics | %FileCheck %s
!a = tensor<6x4xf32>
!b = tensor<4x8xf32>
!t = tensor<6x8xf32>
!r = tensor<2x3x8xf32>
!w = tensor<8xf32>

// CHECK-LABEL: @bias_activation_residual
// CHECK-NEXT: mfuse.matmul %arg0, %arg1 transposed bias %arg2 activation gelu_erf residual %arg3
// CHECK-NEXT: return
func.func @bias_activation_residual(%x: !a, %w: tensor<8x4xf32>, %bias: !w, %res: !t) -> !t {
  %wt = mfuse.permute %w [1, 0] : (tensor<8x4xf32>) -> !b
  // expected-remark @below {{matmul_epilogue: fused}}
  %m = mfuse.matmul %x, %wt : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %s = mfuse.binary add %m, %bias : (!t, !w) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %g = mfuse.unary gelu_erf %s : (!t) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %y = mfuse.binary add %res, %g : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @across_a_reshape
// CHECK: %[[R:.*]] = mfuse.reshape %arg3
// CHECK: %[[M:.*]] = mfuse.matmul %arg0, %arg1 bias %arg2 residual %[[R]]
// CHECK-NEXT: mfuse.reshape %[[M]]
// CHECK-NEXT: return
func.func @across_a_reshape(%x: !a, %w: !b, %bias: !w, %res: !r) -> !r {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  %v = mfuse.reshape %m : (!t) -> !r
  // expected-remark @below {{matmul_epilogue: fused}}
  %s = mfuse.binary add %v, %bias : (!r, !w) -> !r
  // expected-remark @below {{matmul_epilogue: fused}}
  %y = mfuse.binary add %s, %res : (!r, !r) -> !r
  return %y : !r
}

// CHECK-LABEL: @bias_of_the_rows
// CHECK-NOT: bias
func.func @bias_of_the_rows(%x: !a, %w: !b, %rows: tensor<6x1xf32>) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: neither a bias of the columns nor of the result's type}}
  %y = mfuse.binary add %m, %rows : (!t, tensor<6x1xf32>) -> !t
  return %y : !t
}

// CHECK-LABEL: @bias_after_activation
// CHECK: mfuse.matmul %arg0, %arg1 activation relu
// CHECK-NEXT: mfuse.binary add
func.func @bias_after_activation(%x: !a, %w: !b, %bias: !w) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %g = mfuse.unary relu %m : (!t) -> !t
  // expected-remark @below {{matmul_epilogue: the product has an epilogue}}
  %y = mfuse.binary add %g, %bias : (!t, !w) -> !t
  return %y : !t
}

// CHECK-LABEL: @activation_after_residual
// CHECK: mfuse.matmul %arg0, %arg1 residual %arg2
// CHECK-NEXT: mfuse.unary relu
func.func @activation_after_residual(%x: !a, %w: !b, %res: !t) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %s = mfuse.binary add %m, %res : (!t, !t) -> !t
  // expected-remark @below {{matmul_epilogue: the product has an activation, a multiplier or a residual}}
  %y = mfuse.unary relu %s : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: bias
func.func @second_user(%x: !a, %w: !b, %bias: !w) -> (!t, !t) {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: an inner result of mfuse.matmul has another user, func.return}}
  %y = mfuse.binary add %m, %bias : (!t, !w) -> !t
  return %y, %m : !t, !t
}

// CHECK-LABEL: @not_an_activation
// CHECK-NOT: activation
func.func @not_an_activation(%x: !a, %w: !b) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: exp is no activation}}
  %y = mfuse.unary exp %m : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @scalar_sum
// CHECK-NOT: bias
func.func @scalar_sum(%x: !a, %w: !b) -> !t {
  %c = mfuse.scalar 1.0 : f64
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: a scalar is added}}
  %y = mfuse.binary add %m, %c : (!t, f64) -> !t
  return %y : !t
}

// CHECK-LABEL: @broadcast_product
// CHECK-NOT: residual
func.func @broadcast_product(%x: !a, %w: !b, %res: tensor<5x6x8xf32>) -> tensor<5x6x8xf32> {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: the sum broadcasts the product}}
  %y = mfuse.binary add %m, %res : (!t, tensor<5x6x8xf32>) -> tensor<5x6x8xf32>
  return %y : tensor<5x6x8xf32>
}

// The columns become rows: a bias of 6 is not one of the 8 columns.
// CHECK-LABEL: @reshape_of_the_columns
// CHECK-NOT: bias
func.func @reshape_of_the_columns(%x: !a, %w: !b, %bias: tensor<6xf32>) -> tensor<8x6xf32> {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  %v = mfuse.reshape %m : (!t) -> tensor<8x6xf32>
  %y = mfuse.binary add %v, %bias : (tensor<8x6xf32>, tensor<6xf32>) -> tensor<8x6xf32>
  return %y : tensor<8x6xf32>
}

// CHECK-LABEL: @other_permutation
// CHECK: mfuse.permute
// CHECK-NOT: transposed
func.func @other_permutation(%x: tensor<2x6x4xf32>, %w: tensor<8x2x4xf32>) -> tensor<2x6x8xf32> {
  %p = mfuse.permute %w [1, 2, 0] : (tensor<8x2x4xf32>) -> tensor<2x4x8xf32>
  %m = mfuse.matmul %x, %p : (tensor<2x6x4xf32>, tensor<2x4x8xf32>) -> tensor<2x6x8xf32>
  return %m : tensor<2x6x8xf32>
}

// CHECK-LABEL: @dtype_between
// CHECK-NOT: bias
func.func @dtype_between(%x: tensor<6x4xf16>, %w: tensor<4x8xf16>, %bias: !w) -> !t {
  %m = mfuse.matmul %x, %w : (tensor<6x4xf16>, tensor<4x8xf16>) -> tensor<6x8xf16>
  %f = mfuse.cast %m : (tensor<6x8xf16>) -> !t
  %y = mfuse.binary add %f, %bias : (!t, !w) -> !t
  return %y : !t
}

// CHECK-LABEL: @bias_made_of_rows
// CHECK-NOT: bias
func.func @bias_made_of_rows(%x: tensor<8x4xf32>, %w: !b, %bias: !w) -> tensor<8x8xf32> {
  %v = mfuse.reshape %bias : (!w) -> tensor<8x1xf32>
  %m = mfuse.matmul %x, %w : (tensor<8x4xf32>, !b) -> tensor<8x8xf32>
  // expected-remark @below {{matmul_epilogue: neither a bias of the columns nor of the result's type}}
  %y = mfuse.binary add %m, %v : (tensor<8x8xf32>, tensor<8x1xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// CHECK-LABEL: @scale_and_gate
// CHECK-NEXT: mfuse.matmul %arg0, %arg1 scale 5.000000e-01 activation silu multiplier %arg2
// CHECK-NEXT: return
func.func @scale_and_gate(%x: !a, %w: !b, %up: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %s = mfuse.binary mul %m, %half : (!t, f64) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %y = mfuse.binary swiglu %s, %up : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @division_and_product
// CHECK-NEXT: mfuse.matmul %arg0, %arg1 scale 2.500000e-01 bias %arg2 multiplier %arg3
// CHECK-NEXT: return
func.func @division_and_product(%x: !a, %w: !b, %bias: !w, %other: !t) -> !t {
  %four = mfuse.scalar 4.0 : f64
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %s = mfuse.binary div %m, %four : (!t, f64) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %b = mfuse.binary add %s, %bias : (!t, !w) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %y = mfuse.binary mul %other, %b : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @scale_after_bias
// CHECK-NOT: scale
func.func @scale_after_bias(%x: !a, %w: !b, %bias: !w) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %b = mfuse.binary add %m, %bias : (!t, !w) -> !t
  // expected-remark @below {{matmul_epilogue: the product has an epilogue before the scale}}
  %y = mfuse.binary mul %b, %half : (!t, f64) -> !t
  return %y : !t
}

// A third is no number of f32: multiplying by it would round twice.
// CHECK-LABEL: @inexact_division
// CHECK-NOT: scale
func.func @inexact_division(%x: !a, %w: !b) -> !t {
  %c = mfuse.scalar 49.0 : f64
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: the divisor is no power of two}}
  %y = mfuse.binary div %m, %c : (!t, f64) -> !t
  return %y : !t
}

// CHECK-LABEL: @divided_by_the_product
// CHECK-NOT: scale
func.func @divided_by_the_product(%x: !a, %w: !b) -> !t {
  %two = mfuse.scalar 2.0 : f64
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: a number is divided by the product}}
  %y = mfuse.binary div %two, %m : (f64, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @factor_of_the_rows
// CHECK-NOT: multiplier
func.func @factor_of_the_rows(%x: !a, %w: !b, %rows: tensor<6x1xf32>) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: the factor is neither a number nor of the result's type}}
  %y = mfuse.binary mul %m, %rows : (!t, tensor<6x1xf32>) -> !t
  return %y : !t
}

// The product as what is gated, not as the gate.
// CHECK-LABEL: @product_as_up
// CHECK-NOT: multiplier
func.func @product_as_up(%x: !a, %w: !b, %gate: !t) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  %y = mfuse.binary swiglu %gate, %m : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @gate_after_a_residual
// CHECK: mfuse.matmul %arg0, %arg1 residual %arg2
// CHECK-NEXT: mfuse.binary swiglu
func.func @gate_after_a_residual(%x: !a, %w: !b, %res: !t) -> !t {
  %m = mfuse.matmul %x, %w : (!a, !b) -> !t
  // expected-remark @below {{matmul_epilogue: fused}}
  %s = mfuse.binary add %m, %res : (!t, !t) -> !t
  // expected-remark @below {{matmul_epilogue: the product has an activation, a multiplier or a residual}}
  %y = mfuse.binary swiglu %s, %res : (!t, !t) -> !t
  return %y : !t
}
