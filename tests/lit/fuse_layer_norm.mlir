// RUN: %qx-opt %s --qx-fuse-layer-norm --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>
!last = tensor<4x1xf32>
!first = tensor<1x8xf32>
!w = tensor<8xf32>

// CHECK-LABEL: @with_parameters
// CHECK-NEXT: mfuse.layer_norm %arg0 weight %arg1 bias %arg2 num_dims 1 eps 1.000000e-05 correction 0.000000e+00
// CHECK-NEXT: return
func.func @with_parameters(%x: !t, %w: !w, %b: !w) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 0.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: fused}}
  %n = mfuse.binary mul %d, %r : (!t, !last) -> !t
  // expected-remark @below {{layer_norm: fused}}
  %s = mfuse.binary mul %n, %w : (!t, !w) -> !t
  // expected-remark @below {{layer_norm: fused}}
  %y = mfuse.binary add %s, %b : (!t, !w) -> !t
  return %y : !t
}

// CHECK-LABEL: @by_squares
// CHECK-NEXT: mfuse.layer_norm %arg0 num_dims 1
// CHECK-NEXT: return
func.func @by_squares(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %two = mfuse.scalar 2 : i64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %q = mfuse.binary pow %d, %two : (!t, i64) -> !t
  %v = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary sqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: fused}}
  %y = mfuse.binary div %d, %r : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @unbiased_with_eps_outside
// CHECK-NEXT: mfuse.layer_norm %arg0 num_dims 1 eps 9.9{{.*}}E-7 outside correction 1.000000e+00
// CHECK-NEXT: return
func.func @unbiased_with_eps_outside(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 1.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %r = mfuse.unary sqrt %v : (!last) -> !last
  %a = mfuse.binary add %r, %eps : (!last, f64) -> !last
  // expected-remark @below {{layer_norm: fused}}
  %y = mfuse.binary div %d, %a : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_axis
// CHECK-NOT: mfuse.layer_norm
func.func @other_axis(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [0] keepdim : (!t) -> !first
  %v = mfuse.variance %x dims [0] correction 0.0 keepdim : (!t) -> !first
  %d = mfuse.binary sub %x, %m : (!t, !first) -> !t
  %a = mfuse.binary add %v, %eps : (!first, f64) -> !first
  %r = mfuse.unary rsqrt %a : (!first) -> !first
  // expected-remark @below {{layer_norm: the dims are not the last ones}}
  %y = mfuse.binary mul %d, %r : (!t, !first) -> !t
  return %y : !t
}

// CHECK-LABEL: @axes_differ
// CHECK-NOT: mfuse.layer_norm
func.func @axes_differ(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [0] correction 0.0 keepdim : (!t) -> !first
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!first, f64) -> !first
  %r = mfuse.unary rsqrt %a : (!first) -> !first
  // expected-remark @below {{layer_norm: mean and variance are over different dims}}
  %y = mfuse.binary mul %d, %r : (!t, !first) -> !t
  return %y : !t
}

// CHECK-LABEL: @other_correction
// CHECK-NOT: mfuse.layer_norm
func.func @other_correction(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 2.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: a correction other than 0 and 1}}
  %y = mfuse.binary mul %d, %r : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @variance_of_another_tensor
// CHECK-NOT: mfuse.layer_norm
func.func @variance_of_another_tensor(%x: !t, %z: !t) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %z dims [1] correction 0.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: the variance is of another tensor}}
  %y = mfuse.binary mul %d, %r : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @negative_eps
// CHECK-NOT: mfuse.layer_norm
func.func @negative_eps(%x: !t) -> !t {
  %eps = mfuse.scalar -1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 0.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: eps is negative}}
  %y = mfuse.binary mul %d, %r : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: mfuse.layer_norm
func.func @second_user(%x: !t) -> (!t, !last) {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 0.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: an inner result of mfuse.reduce has another user, mfuse.unary}}
  %y = mfuse.binary mul %d, %r : (!t, !last) -> !t
  %e = mfuse.unary exp %m : (!last) -> !last
  return %y, %e : !t, !last
}

// The backward pass reads the mean: recognised, and left in primitive operations.
// CHECK-LABEL: @saved_for_backward
// CHECK-NOT: mfuse.layer_norm
// CHECK: return
func.func @saved_for_backward(%x: !t) -> (!t, !last) {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 0.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: fused}}
  %y = mfuse.binary mul %d, %r : (!t, !last) -> !t
  return %y, %m : !t, !last
}

// A weight for each row is no parameter of the norm.
// CHECK-LABEL: @weight_of_the_rows
// CHECK: mfuse.layer_norm %arg0 num_dims 1
// CHECK-NEXT: mfuse.binary mul
func.func @weight_of_the_rows(%x: !t, %w: !last) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %v = mfuse.variance %x dims [1] correction 0.0 keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: fused}}
  %n = mfuse.binary mul %d, %r : (!t, !last) -> !t
  // expected-remark @below {{layer_norm: the other operand is not a parameter of the normalised dims}}
  %y = mfuse.binary mul %n, %w : (!t, !last) -> !t
  return %y : !t
}

// The mean of the squares of x itself is no variance.
// CHECK-LABEL: @squares_that_are_not_centred
// CHECK-NOT: mfuse.layer_norm
func.func @squares_that_are_not_centred(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-5 : f64
  %m = mfuse.reduce mean %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %v = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %v, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{layer_norm: the variance is of another tensor}}
  %y = mfuse.binary mul %d, %r : (!t, !last) -> !t
  return %y : !t
}
