// RUN: %qx-opt %s --qx-fuse-swiglu --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>
!x = tensor<4x16xf32>

// CHECK-LABEL: @two_halves
// CHECK: %[[GATE:.*]] = mfuse.slice %arg0 dim 1 start 0
// CHECK: %[[UP:.*]] = mfuse.slice %arg0 dim 1 start 8
// CHECK: mfuse.binary swiglu %[[GATE]], %[[UP]]
// CHECK-NEXT: return
func.func @two_halves(%x: !x) -> !t {
  %g = mfuse.slice %x dim 1 start 0 step 1 : (!x) -> !t
  %u = mfuse.slice %x dim 1 start 8 step 1 : (!x) -> !t
  %s = mfuse.unary silu %g : (!t) -> !t
  // expected-remark @below {{swiglu: fused}}
  %y = mfuse.binary mul %s, %u : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @two_products
// CHECK: %[[GATE:.*]] = mfuse.matmul %arg0, %arg1
// CHECK: %[[UP:.*]] = mfuse.matmul %arg0, %arg2
// CHECK: mfuse.binary swiglu %[[GATE]], %[[UP]]
func.func @two_products(%x: !x, %wg: tensor<16x8xf32>, %wu: tensor<16x8xf32>) -> !t {
  %g = mfuse.matmul %x, %wg : (!x, tensor<16x8xf32>) -> !t
  %u = mfuse.matmul %x, %wu : (!x, tensor<16x8xf32>) -> !t
  %s = mfuse.unary silu %g : (!t) -> !t
  // expected-remark @below {{swiglu: fused}}
  %y = mfuse.binary mul %u, %s : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @geglu
// CHECK: mfuse.binary geglu_tanh %arg0, %arg1
func.func @geglu(%g: !t, %u: !t) -> !t {
  %s = mfuse.unary gelu_tanh %g : (!t) -> !t
  // expected-remark @below {{swiglu: fused}}
  %y = mfuse.binary mul %s, %u : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: swiglu
func.func @second_user(%g: !t, %u: !t) -> (!t, !t) {
  %s = mfuse.unary silu %g : (!t) -> !t
  // expected-remark @below {{swiglu: an inner result of mfuse.unary has another user, func.return}}
  %y = mfuse.binary mul %s, %u : (!t, !t) -> !t
  return %y, %s : !t, !t
}

// CHECK-LABEL: @broadcast_up
// CHECK-NOT: swiglu
func.func @broadcast_up(%g: !t, %u: tensor<8xf32>) -> !t {
  %s = mfuse.unary silu %g : (!t) -> !t
  // expected-remark @below {{swiglu: gate and up have not both the result's type}}
  %y = mfuse.binary mul %s, %u : (!t, tensor<8xf32>) -> !t
  return %y : !t
}

// CHECK-LABEL: @scalar_up
// CHECK-NOT: swiglu
func.func @scalar_up(%g: !t) -> !t {
  %c = mfuse.scalar 2.0 : f64
  %s = mfuse.unary silu %g : (!t) -> !t
  // expected-remark @below {{swiglu: gate and up have not both the result's type}}
  %y = mfuse.binary mul %s, %c : (!t, f64) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_activation
// CHECK-NOT: swiglu
func.func @other_activation(%g: !t, %u: !t) -> !t {
  %s = mfuse.unary sigmoid %g : (!t) -> !t
  %y = mfuse.binary mul %s, %u : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @sum_instead
// CHECK-NOT: swiglu
func.func @sum_instead(%g: !t, %u: !t) -> !t {
  %s = mfuse.unary silu %g : (!t) -> !t
  %y = mfuse.binary add %s, %u : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @dtype_between
// CHECK-NOT: swiglu
func.func @dtype_between(%g: tensor<4x8xf16>, %u: !t) -> !t {
  %s = mfuse.unary silu %g : (tensor<4x8xf16>) -> tensor<4x8xf16>
  %f = mfuse.cast %s : (tensor<4x8xf16>) -> !t
  %y = mfuse.binary mul %f, %u : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @write_between
// CHECK-NOT: swiglu
func.func @write_between(%g: !t, %u: !t) -> !t {
  %s = mfuse.unary silu %g : (!t) -> !t
  %w = mfuse.opaque "aten.zero_.default" node 1 writes (%g) : (!t) -> !t
  // expected-remark @below {{swiglu: memory is written to in between}}
  %y = mfuse.binary mul %s, %u : (!t, !t) -> !t
  return %y : !t
}
