// RUN: %qx-opt %s --qx-fuse-gelu --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>

// CHECK-LABEL: @by_erf
// CHECK-NEXT: mfuse.unary gelu_erf %arg0
// CHECK-NEXT: return
func.func @by_erf(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %root = mfuse.scalar 0.7071067811865476 : f64
  %one = mfuse.scalar 1 : i64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %z = mfuse.binary mul %x, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, i64) -> !t
  // expected-remark @below {{gelu: fused}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// The half comes last, and the root of two divides.
// CHECK-LABEL: @by_erf_of_a_sum
// CHECK: %[[X:.*]] = mfuse.binary mul %arg0, %arg0
// CHECK-NEXT: mfuse.unary gelu_erf %[[X]]
// CHECK-NEXT: return
func.func @by_erf_of_a_sum(%a: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %root = mfuse.scalar 1.4142135623730951 : f64
  %one = mfuse.scalar 1.0 : f64
  %x = mfuse.binary mul %a, %a : (!t, !t) -> !t
  %z = mfuse.binary div %x, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %one, %e : (f64, !t) -> !t
  %p = mfuse.binary mul %x, %o : (!t, !t) -> !t
  // expected-remark @below {{gelu: fused}}
  %y = mfuse.binary mul %p, %half : (!t, f64) -> !t
  return %y : !t
}

// CHECK-LABEL: @by_tanh_with_pow
// CHECK-NEXT: mfuse.unary gelu_tanh %arg0
// CHECK-NEXT: return
func.func @by_tanh_with_pow(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %three = mfuse.scalar 3 : i64
  %cubic = mfuse.scalar 0.044715 : f64
  %scale = mfuse.scalar 0.7978845608028654 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %p = mfuse.binary pow %x, %three : (!t, i64) -> !t
  %c = mfuse.binary mul %p, %cubic : (!t, f64) -> !t
  %s = mfuse.binary add %x, %c : (!t, !t) -> !t
  %z = mfuse.binary mul %s, %scale : (!t, f64) -> !t
  %e = mfuse.unary tanh %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  // expected-remark @below {{gelu: fused}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @by_tanh_with_products
// CHECK-NEXT: mfuse.unary gelu_tanh %arg0
// CHECK-NEXT: return
func.func @by_tanh_with_products(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %cubic = mfuse.scalar 0.044715 : f64
  %scale = mfuse.scalar 0.7978845608028654 : f64
  %one = mfuse.scalar 1.0 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %p = mfuse.binary mul %q, %x : (!t, !t) -> !t
  %c = mfuse.binary mul %cubic, %p : (f64, !t) -> !t
  %s = mfuse.binary add %c, %x : (!t, !t) -> !t
  %z = mfuse.binary mul %scale, %s : (f64, !t) -> !t
  %e = mfuse.unary tanh %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  %g = mfuse.binary mul %o, %half : (!t, f64) -> !t
  // expected-remark @below {{gelu: fused}}
  %y = mfuse.binary mul %x, %g : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @by_tanh_factored
// CHECK-NEXT: mfuse.unary gelu_tanh %arg0
// CHECK-NEXT: return
func.func @by_tanh_factored(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %cubic = mfuse.scalar 0.044715 : f64
  %scale = mfuse.scalar 0.7978845608028654 : f64
  %one = mfuse.scalar 1.0 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %c = mfuse.binary mul %q, %cubic : (!t, f64) -> !t
  %s = mfuse.binary add %c, %one : (!t, f64) -> !t
  %w = mfuse.binary mul %x, %scale : (!t, f64) -> !t
  %z = mfuse.binary mul %w, %s : (!t, !t) -> !t
  %e = mfuse.unary tanh %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  // expected-remark @below {{gelu: fused}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @quick
// CHECK-NEXT: mfuse.unary gelu_quick %arg0
// CHECK-NEXT: return
func.func @quick(%x: !t) -> !t {
  %c = mfuse.scalar 1.702 : f64
  %z = mfuse.binary mul %x, %c : (!t, f64) -> !t
  %s = mfuse.unary sigmoid %z : (!t) -> !t
  // expected-remark @below {{gelu: fused}}
  %y = mfuse.binary mul %x, %s : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_factor
// CHECK-NOT: gelu
func.func @other_factor(%x: !t) -> !t {
  %half = mfuse.scalar 0.6 : f64
  %root = mfuse.scalar 0.7071067811865476 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %z = mfuse.binary mul %x, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  // expected-remark @below {{gelu: factor 0.600000, expected 0.5}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_root
// CHECK-NOT: gelu
func.func @other_root(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %root = mfuse.scalar 0.7072 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %z = mfuse.binary mul %x, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  // expected-remark @below {{gelu: erf of 0.707200 x, expected 1 / sqrt(2)}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_cubic
// CHECK-NOT: gelu
func.func @other_cubic(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %three = mfuse.scalar 3 : i64
  %cubic = mfuse.scalar 0.0447 : f64
  %scale = mfuse.scalar 0.7978845608028654 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %p = mfuse.binary pow %x, %three : (!t, i64) -> !t
  %c = mfuse.binary mul %p, %cubic : (!t, f64) -> !t
  %s = mfuse.binary add %x, %c : (!t, !t) -> !t
  %z = mfuse.binary mul %s, %scale : (!t, f64) -> !t
  %e = mfuse.unary tanh %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  // expected-remark @below {{gelu: tanh is not of sqrt(2/pi) (x + 0.044715 x^3)}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_power
// CHECK-NOT: gelu
func.func @other_power(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %two = mfuse.scalar 2 : i64
  %cubic = mfuse.scalar 0.044715 : f64
  %scale = mfuse.scalar 0.7978845608028654 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %p = mfuse.binary pow %x, %two : (!t, i64) -> !t
  %c = mfuse.binary mul %p, %cubic : (!t, f64) -> !t
  %s = mfuse.binary add %x, %c : (!t, !t) -> !t
  %z = mfuse.binary mul %s, %scale : (!t, f64) -> !t
  %e = mfuse.unary tanh %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  // expected-remark @below {{gelu: tanh is not of}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: gelu
func.func @second_user(%x: !t) -> (!t, !t) {
  %half = mfuse.scalar 0.5 : f64
  %root = mfuse.scalar 0.7071067811865476 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %z = mfuse.binary mul %x, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  // expected-remark @below {{gelu: an inner result of mfuse.unary has another user, func.return}}
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y, %e : !t, !t
}

// CHECK-LABEL: @erf_of_another_tensor
// CHECK-NOT: gelu
func.func @erf_of_another_tensor(%x: !t, %v: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %root = mfuse.scalar 0.7071067811865476 : f64
  %one = mfuse.scalar 1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %z = mfuse.binary mul %v, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @minus_one
// CHECK-NOT: gelu
func.func @minus_one(%x: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %root = mfuse.scalar 0.7071067811865476 : f64
  %one = mfuse.scalar -1.0 : f64
  %h = mfuse.binary mul %x, %half : (!t, f64) -> !t
  %z = mfuse.binary mul %x, %root : (!t, f64) -> !t
  %e = mfuse.unary erf %z : (!t) -> !t
  %o = mfuse.binary add %e, %one : (!t, f64) -> !t
  %y = mfuse.binary mul %h, %o : (!t, !t) -> !t
  return %y : !t
}
