// RUN: %qx-opt %s --qx-fuse-add-rms-norm --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>
!w = tensor<8xf32>

// CHECK-LABEL: @with_another_user_of_the_sum
// CHECK-NEXT: %[[NORM:.*]], %[[SUM:.*]] = mfuse.add_rms_norm %arg0, %arg1 weight %arg2 eps 9.9{{.*}}E-7
// CHECK-NEXT: return %[[NORM]], %[[SUM]]
func.func @with_another_user_of_the_sum(%x: !t, %r: !t, %w: !w) -> (!t, !t) {
  %s = mfuse.binary add %x, %r : (!t, !t) -> !t
  // expected-remark @below {{add_rms_norm: fused}}
  %y = mfuse.rms_norm %s weight %w eps 1.0e-6 : (!t, !w) -> !t
  return %y, %s : !t, !t
}

// CHECK-LABEL: @broadcast_sum
// CHECK-NOT: add_rms_norm
func.func @broadcast_sum(%x: !t, %r: !w) -> !t {
  %s = mfuse.binary add %x, %r : (!t, !w) -> !t
  // expected-remark @below {{add_rms_norm: the sum broadcasts or adds a scalar}}
  %y = mfuse.rms_norm %s eps 1.0e-6 : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @scalar_sum
// CHECK-NOT: add_rms_norm
func.func @scalar_sum(%x: !t) -> !t {
  %c = mfuse.scalar 1.0 : f64
  %s = mfuse.binary add %x, %c : (!t, f64) -> !t
  // expected-remark @below {{add_rms_norm: the sum broadcasts or adds a scalar}}
  %y = mfuse.rms_norm %s eps 1.0e-6 : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @difference
// CHECK-NOT: add_rms_norm
func.func @difference(%x: !t, %r: !t) -> !t {
  %s = mfuse.binary sub %x, %r : (!t, !t) -> !t
  %y = mfuse.rms_norm %s eps 1.0e-6 : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @scaled_residual
// CHECK-NOT: add_rms_norm
func.func @scaled_residual(%x: !t, %r: !t) -> !t {
  %half = mfuse.scalar 0.5 : f64
  %s = mfuse.binary add %x, %r : (!t, !t) -> !t
  %h = mfuse.binary mul %s, %half : (!t, f64) -> !t
  %y = mfuse.rms_norm %h eps 1.0e-6 : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @weight_made_later
// CHECK-NOT: add_rms_norm
func.func @weight_made_later(%x: !t, %r: !t, %v: !w) -> !t {
  %s = mfuse.binary add %x, %r : (!t, !t) -> !t
  %w = mfuse.unary exp %v : (!w) -> !w
  // expected-remark @below {{add_rms_norm: the weight is made after the sum}}
  %y = mfuse.rms_norm %s weight %w eps 1.0e-6 : (!t, !w) -> !t
  return %y : !t
}

// CHECK-LABEL: @cast_between
// CHECK-NOT: add_rms_norm
func.func @cast_between(%x: tensor<4x8xf16>, %r: tensor<4x8xf16>) -> !t {
  %s = mfuse.binary add %x, %r : (tensor<4x8xf16>, tensor<4x8xf16>) -> tensor<4x8xf16>
  %f = mfuse.cast %s : (tensor<4x8xf16>) -> !t
  %y = mfuse.rms_norm %f eps 1.0e-6 : (!t) -> !t
  return %y : !t
}

// CHECK-LABEL: @write_between
// CHECK-NOT: add_rms_norm
func.func @write_between(%x: !t, %r: !t) -> !t {
  %s = mfuse.binary add %x, %r : (!t, !t) -> !t
  %w = mfuse.opaque "aten.add_.Tensor" node 1 writes (%x) : (!t) -> !t
  // expected-remark @below {{add_rms_norm: memory is written to in between}}
  %y = mfuse.rms_norm %s eps 1.0e-6 : (!t) -> !t
  return %y : !t
}
