// RUN: %qx-opt %s --qx-fuse-silu --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>
!row = tensor<8xf32>

// CHECK-LABEL: @by_sigmoid
// CHECK-NEXT: mfuse.unary silu %arg0
// CHECK-NEXT: return
func.func @by_sigmoid(%x: !t) -> !t {
  %s = mfuse.unary sigmoid %x : (!t) -> !t
  // expected-remark @below {{silu: fused}}
  %y = mfuse.binary mul %s, %x : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @by_exp
// CHECK-NEXT: mfuse.unary silu %arg0
// CHECK-NEXT: return
func.func @by_exp(%x: !t) -> !t {
  %one = mfuse.scalar 1 : i64
  %n = mfuse.unary neg %x : (!t) -> !t
  %e = mfuse.unary exp %n : (!t) -> !t
  %d = mfuse.binary add %one, %e : (i64, !t) -> !t
  // expected-remark @below {{silu: fused}}
  %y = mfuse.binary div %x, %d : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @by_reciprocal
// CHECK-NEXT: mfuse.unary silu %arg0
// CHECK-NEXT: return
func.func @by_reciprocal(%x: !t) -> !t {
  %one = mfuse.scalar 1.0 : f64
  %n = mfuse.unary neg %x : (!t) -> !t
  %e = mfuse.unary exp %n : (!t) -> !t
  %d = mfuse.binary add %e, %one : (!t, f64) -> !t
  %r = mfuse.binary div %one, %d : (f64, !t) -> !t
  // expected-remark @below {{silu: fused}}
  %y = mfuse.binary mul %x, %r : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_scale
// CHECK-NOT: silu
func.func @other_scale(%x: !t) -> !t {
  %c = mfuse.scalar 1.5 : f64
  %z = mfuse.binary mul %x, %c : (!t, f64) -> !t
  %s = mfuse.unary sigmoid %z : (!t) -> !t
  // expected-remark @below {{silu: sigmoid of 1.500000 x, expected of x}}
  %y = mfuse.binary mul %x, %s : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @gate_of_another_tensor
// CHECK-NOT: silu
func.func @gate_of_another_tensor(%x: !t, %g: !t) -> !t {
  %s = mfuse.unary sigmoid %g : (!t) -> !t
  %y = mfuse.binary mul %x, %s : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: silu
func.func @second_user(%x: !t) -> (!t, !t) {
  %s = mfuse.unary sigmoid %x : (!t) -> !t
  // expected-remark @below {{silu: an inner result of mfuse.unary has another user, func.return}}
  %y = mfuse.binary mul %x, %s : (!t, !t) -> !t
  return %y, %s : !t, !t
}

// CHECK-LABEL: @two_plus_exp
// CHECK-NOT: silu
func.func @two_plus_exp(%x: !t) -> !t {
  %two = mfuse.scalar 2.0 : f64
  %n = mfuse.unary neg %x : (!t) -> !t
  %e = mfuse.unary exp %n : (!t) -> !t
  %d = mfuse.binary add %e, %two : (!t, f64) -> !t
  %y = mfuse.binary div %x, %d : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @exp_without_minus
// CHECK-NOT: silu
func.func @exp_without_minus(%x: !t) -> !t {
  %one = mfuse.scalar 1.0 : f64
  %e = mfuse.unary exp %x : (!t) -> !t
  %d = mfuse.binary add %e, %one : (!t, f64) -> !t
  %y = mfuse.binary div %x, %d : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @write_between
// CHECK-NOT: silu
func.func @write_between(%x: !t) -> !t {
  %s = mfuse.unary sigmoid %x : (!t) -> !t
  %w = mfuse.opaque "aten.add_.Tensor" node 1 writes (%x) : (!t) -> !t
  // expected-remark @below {{silu: memory is written to in between by aten.add_.Tensor}}
  %y = mfuse.binary mul %x, %s : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @dtype_between
// CHECK-NOT: silu
func.func @dtype_between(%x: !t) -> tensor<4x8xf16> {
  %s = mfuse.unary sigmoid %x : (!t) -> !t
  %h = mfuse.cast %s : (!t) -> tensor<4x8xf16>
  %z = mfuse.cast %x : (!t) -> tensor<4x8xf16>
  %y = mfuse.binary mul %z, %h : (tensor<4x8xf16>, tensor<4x8xf16>) -> tensor<4x8xf16>
  return %y : tensor<4x8xf16>
}
