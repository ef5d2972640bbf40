// RUN: %qx-opt %s --qx-fuse-rope --verify-diagnostics | %FileCheck %s
!x = tensor<2x4x3x8xf32>
!half = tensor<2x4x3x4xf32>
!one = tensor<2x4x3x4x1xf32>
!pairs = tensor<2x4x3x4x2xf32>
!c = tensor<1x1x3x8xf32>
!hc = tensor<3x4xf32>

// CHECK-LABEL: @half
// CHECK-NEXT: mfuse.rope half %arg0, %arg1, %arg2
// CHECK-NEXT: return
func.func @half(%x: !x, %cos: !c, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %r = mfuse.cat %n, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: fused}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @interleaved_by_strides
// CHECK-NEXT: mfuse.rope interleaved %arg0, %arg1, %arg2
// CHECK-NEXT: return
func.func @interleaved_by_strides(%x: !x, %cos: !c, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 2 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 1 step 2 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %n1 = mfuse.reshape %n : (!half) -> !one
  %a1 = mfuse.reshape %a : (!half) -> !one
  %s = mfuse.cat %n1, %a1 dim 4 : (!one, !one) -> !pairs
  %r = mfuse.reshape %s : (!pairs) -> !x
  %p = mfuse.binary mul %cos, %x : (!c, !x) -> !x
  %q = mfuse.binary mul %sin, %r : (!c, !x) -> !x
  // expected-remark @below {{rope: fused}}
  %y = mfuse.binary add %q, %p : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @interleaved_by_pairs
// CHECK-NEXT: mfuse.rope interleaved %arg0, %arg1, %arg2
// CHECK-NEXT: return
func.func @interleaved_by_pairs(%x: !x, %cos: !c, %sin: !c) -> !x {
  %v = mfuse.reshape %x : (!x) -> !pairs
  %a = mfuse.slice %v dim 4 start 0 step 1 : (!pairs) -> !one
  %b = mfuse.slice %v dim 4 start 1 step 1 : (!pairs) -> !one
  %bb = mfuse.reshape %b : (!one) -> !half
  %n = mfuse.unary neg %bb : (!half) -> !half
  %n1 = mfuse.reshape %n : (!half) -> !one
  %s = mfuse.cat %n1, %a dim 4 : (!one, !one) -> !pairs
  %r = mfuse.reshape %s : (!pairs) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: fused}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @over_halves
// CHECK: %[[COS:.*]] = mfuse.cat %arg1, %arg1 dim 1
// CHECK: %[[SIN:.*]] = mfuse.cat %arg2, %arg2 dim 1
// CHECK: mfuse.rope half %arg0, %[[COS]], %[[SIN]]
func.func @over_halves(%x: !x, %cos: !hc, %sin: !hc) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %ac = mfuse.binary mul %a, %cos : (!half, !hc) -> !half
  %bs = mfuse.binary mul %b, %sin : (!half, !hc) -> !half
  %bc = mfuse.binary mul %b, %cos : (!half, !hc) -> !half
  %as = mfuse.binary mul %a, %sin : (!half, !hc) -> !half
  %first = mfuse.binary sub %ac, %bs : (!half, !half) -> !half
  %second = mfuse.binary add %bc, %as : (!half, !half) -> !half
  // expected-remark @below {{rope: fused}}
  %y = mfuse.cat %first, %second dim 3 : (!half, !half) -> !x
  return %y : !x
}

// Without the minus it is another function.
// CHECK-LABEL: @without_minus
// CHECK-NOT: mfuse.rope
func.func @without_minus(%x: !x, %cos: !c, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %r = mfuse.cat %b, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @halves_overlap
// CHECK-NOT: mfuse.rope
func.func @halves_overlap(%x: !x, %cos: !c, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 3 step 1 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %r = mfuse.cat %n, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: the slices are not the two halves}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @other_axis
// CHECK-NOT: mfuse.rope
func.func @other_axis(%x: tensor<8x8xf32>, %cos: tensor<8x8xf32>, %sin: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %a = mfuse.slice %x dim 0 start 0 step 1 : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = mfuse.slice %x dim 0 start 4 step 1 : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %n = mfuse.unary neg %b : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = mfuse.cat %n, %a dim 0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %p = mfuse.binary mul %x, %cos : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %q = mfuse.binary mul %r, %sin : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{rope: halves are not of the last dim}}
  %y = mfuse.binary add %p, %q : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// CHECK-LABEL: @another_tensor_with_cos
// CHECK-NOT: mfuse.rope
func.func @another_tensor_with_cos(%x: !x, %z: !x, %cos: !c, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %r = mfuse.cat %n, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %z, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: cos is not multiplied with the tensor that is rotated}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @scalar_cos
// CHECK-NOT: mfuse.rope
func.func @scalar_cos(%x: !x, %sin: !c) -> !x {
  %cos = mfuse.scalar 0.5 : f64
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %r = mfuse.cat %n, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, f64) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: cos is a scalar}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @cos_of_one_column
// CHECK-NOT: mfuse.rope
func.func @cos_of_one_column(%x: !x, %cos: tensor<3x1xf32>, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %r = mfuse.cat %n, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, tensor<3x1xf32>) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: cos and sin do not fit the operand}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @even_and_odd_exchanged
// CHECK-NOT: mfuse.rope
func.func @even_and_odd_exchanged(%x: !x, %cos: !c, %sin: !c) -> !x {
  %a = mfuse.slice %x dim 3 start 1 step 2 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 0 step 2 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %n1 = mfuse.reshape %n : (!half) -> !one
  %a1 = mfuse.reshape %a : (!half) -> !one
  %s = mfuse.cat %n1, %a1 dim 4 : (!one, !one) -> !pairs
  %r = mfuse.reshape %s : (!pairs) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: the slices are not the even and the odd elements}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y : !x
}

// CHECK-LABEL: @second_user
// CHECK-NOT: mfuse.rope
func.func @second_user(%x: !x, %cos: !c, %sin: !c) -> (!x, !x) {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %n = mfuse.unary neg %b : (!half) -> !half
  %r = mfuse.cat %n, %a dim 3 : (!half, !half) -> !x
  %p = mfuse.binary mul %x, %cos : (!x, !c) -> !x
  %q = mfuse.binary mul %r, %sin : (!x, !c) -> !x
  // expected-remark @below {{rope: an inner result of mfuse.cat has another user, func.return}}
  %y = mfuse.binary add %p, %q : (!x, !x) -> !x
  return %y, %r : !x, !x
}

// CHECK-LABEL: @second_half_differs
// CHECK-NOT: mfuse.rope
func.func @second_half_differs(%x: !x, %cos: !hc, %sin: !hc) -> !x {
  %a = mfuse.slice %x dim 3 start 0 step 1 : (!x) -> !half
  %b = mfuse.slice %x dim 3 start 4 step 1 : (!x) -> !half
  %ac = mfuse.binary mul %a, %cos : (!half, !hc) -> !half
  %bs = mfuse.binary mul %b, %sin : (!half, !hc) -> !half
  %bc = mfuse.binary mul %b, %sin : (!half, !hc) -> !half
  %as = mfuse.binary mul %a, %cos : (!half, !hc) -> !half
  %first = mfuse.binary sub %ac, %bs : (!half, !half) -> !half
  %second = mfuse.binary add %bc, %as : (!half, !half) -> !half
  // expected-remark @below {{rope: the second half is not x2 * cos + x1 * sin}}
  %y = mfuse.cat %first, %second dim 3 : (!half, !half) -> !x
  return %y : !x
}
