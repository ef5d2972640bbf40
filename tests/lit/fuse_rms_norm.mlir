// RUN: %qx-opt %s --qx-fuse-rms-norm --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>
!h = tensor<4x8xbf16>
!last = tensor<4x1xf32>
!first = tensor<1x8xf32>
!w = tensor<8xf32>
!d = tensor<?x8xf32, affine_map<()[s0] -> (s0, 8)>>
!dlast = tensor<?x1xf32, affine_map<()[s0] -> (s0, 1)>>

// CHECK-LABEL: @with_weight
// CHECK-NEXT: mfuse.rms_norm %arg0 weight %arg1 eps 9.9{{.*}}E-7
// CHECK-NEXT: return
func.func @with_weight(%x: !t, %w: !w) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %two = mfuse.scalar 2 : i64
  %q = mfuse.binary pow %x, %two : (!t, i64) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  // expected-remark @below {{rms_norm: fused}}
  %y = mfuse.binary mul %w, %n : (!w, !t) -> !t
  return %y : !t
}

// CHECK-LABEL: @dynamic_rows
// CHECK-NEXT: mfuse.rms_norm %arg0 eps
// CHECK-NEXT: return
func.func @dynamic_rows(%x: !d) -> !d {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (!d, !d) -> !d
  %m = mfuse.reduce mean %q dims [1] keepdim : (!d) -> !dlast
  %a = mfuse.binary add %m, %eps : (!dlast, f64) -> !dlast
  %r = mfuse.unary rsqrt %a : (!dlast) -> !dlast
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary mul %x, %r : (!d, !dlast) -> !d
  return %n : !d
}

// CHECK-LABEL: @half_precision
// CHECK-NEXT: mfuse.rms_norm %arg0 eps {{[^ ]*}} : (tensor<4x8xbf16>)
// CHECK-NEXT: return
func.func @half_precision(%h: !h) -> !h {
  %eps = mfuse.scalar 1.0e-6 : f64
  %x = mfuse.cast %h : (!h) -> !t
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  // expected-remark @below {{rms_norm: fused}}
  %y = mfuse.cast %n : (!t) -> !h
  return %y : !h
}

// A sum that is divided by 8, a power of -1/2, and the kept dim restored by a reshape.
// CHECK-LABEL: @by_sum_and_power
// CHECK-NEXT: mfuse.rms_norm %arg0 eps
// CHECK-NEXT: return
func.func @by_sum_and_power(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %count = mfuse.scalar 8 : i64
  %power = mfuse.scalar -0.5 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %s = mfuse.reduce sum %q dims [1] : (!t) -> tensor<4xf32>
  %m = mfuse.binary div %s, %count : (tensor<4xf32>, i64) -> tensor<4xf32>
  %k = mfuse.reshape %m : (tensor<4xf32>) -> !last
  %a = mfuse.binary add %eps, %k : (f64, !last) -> !last
  %r = mfuse.binary pow %a, %power : (!last, f64) -> !last
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary mul %r, %x : (!last, !t) -> !t
  return %n : !t
}

// CHECK-LABEL: @by_root
// CHECK-NEXT: mfuse.rms_norm %arg0 eps
// CHECK-NEXT: return
func.func @by_root(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary sqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary div %x, %r : (!t, !last) -> !t
  return %n : !t
}

// CHECK-LABEL: @other_axis
// CHECK-NOT: mfuse.rms_norm
func.func @other_axis(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [0] keepdim : (!t) -> !first
  %a = mfuse.binary add %m, %eps : (!first, f64) -> !first
  %r = mfuse.unary rsqrt %a : (!first) -> !first
  // expected-remark @below {{rms_norm: the mean is not over the last dim alone}}
  %n = mfuse.binary mul %x, %r : (!t, !first) -> !t
  return %n : !t
}

// CHECK-LABEL: @without_keepdim
// CHECK-NOT: mfuse.rms_norm
func.func @without_keepdim(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = mfuse.reduce mean %q dims [1] : (tensor<8x8xf32>) -> !w
  %a = mfuse.binary add %m, %eps : (!w, f64) -> !w
  %r = mfuse.unary rsqrt %a : (!w) -> !w
  // expected-remark @below {{rms_norm: the mean does not keep its dim}}
  %n = mfuse.binary mul %x, %r : (tensor<8x8xf32>, !w) -> tensor<8x8xf32>
  return %n : tensor<8x8xf32>
}

// CHECK-LABEL: @other_count
// CHECK-NOT: mfuse.rms_norm
func.func @other_count(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %count = mfuse.scalar 7 : i64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %s = mfuse.reduce sum %q dims [1] keepdim : (!t) -> !last
  %m = mfuse.binary div %s, %count : (!last, i64) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: the sum is divided by another number than the last dim's size}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  return %n : !t
}

// CHECK-LABEL: @squares_of_another_tensor
// CHECK-NOT: mfuse.rms_norm
func.func @squares_of_another_tensor(%x: !t, %z: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %z, %z : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: the squares are of another tensor than the one that is scaled}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  return %n : !t
}

// CHECK-LABEL: @cubes
// CHECK-NOT: mfuse.rms_norm
func.func @cubes(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %three = mfuse.scalar 3 : i64
  %q = mfuse.binary pow %x, %three : (!t, i64) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  return %n : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: mfuse.rms_norm
func.func @second_user(%x: !t) -> (!t, !last) {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: an inner result of mfuse.unary has another user, mfuse.unary}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  %e = mfuse.unary exp %r : (!last) -> !last
  return %n, %e : !t, !last
}

// The backward pass reads 1 / rms: recognised, and left in primitive operations.
// CHECK-LABEL: @saved_for_backward
// CHECK-NOT: mfuse.rms_norm
// CHECK: return
func.func @saved_for_backward(%x: !t) -> (!t, !last) {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  return %n, %r : !t, !last
}

// CHECK-LABEL: @write_between
// CHECK-NOT: mfuse.rms_norm
func.func @write_between(%x: !t) -> !t {
  %eps = mfuse.scalar 1.0e-6 : f64
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %w = mfuse.opaque "aten.copy_.default" node 2 writes (%x) : (!t) -> !t
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: memory is written to in between by aten.copy_.default}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  return %n : !t
}

// CHECK-LABEL: @casts_differ
// CHECK: mfuse.cast
// CHECK: mfuse.rms_norm {{.*}}(tensor<4x8xf32>)
// CHECK: mfuse.cast
func.func @casts_differ(%h: !h) -> tensor<4x8xf16> {
  %eps = mfuse.scalar 1.0e-6 : f64
  %x = mfuse.cast %h : (!h) -> !t
  %q = mfuse.binary mul %x, %x : (!t, !t) -> !t
  %m = mfuse.reduce mean %q dims [1] keepdim : (!t) -> !last
  %a = mfuse.binary add %m, %eps : (!last, f64) -> !last
  %r = mfuse.unary rsqrt %a : (!last) -> !last
  // expected-remark @below {{rms_norm: fused}}
  %n = mfuse.binary mul %x, %r : (!t, !last) -> !t
  // expected-remark @below {{rms_norm: the casts before and after differ}}
  %y = mfuse.cast %n : (!t) -> tensor<4x8xf16>
  return %y : tensor<4x8xf16>
}

// CHECK-LABEL: @weight_with_leading_ones
// CHECK-NEXT: mfuse.rms_norm %arg0 weight %arg1
// CHECK-NEXT: return
func.func @weight_with_leading_ones(%x: tensor<8x8xf32>, %w: !w) -> tensor<8x8xf32> {
  %v = mfuse.reshape %w : (!w) -> tensor<1x8xf32>
  %n = mfuse.rms_norm %x eps 1.0e-6 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{rms_norm: fused}}
  %y = mfuse.binary mul %n, %v : (tensor<8x8xf32>, tensor<1x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// The parameter has the last dim's size, but a reshape makes it scale the rows.
// CHECK-LABEL: @weight_made_of_rows
// CHECK: mfuse.rms_norm %arg0 eps
// CHECK: mfuse.binary mul
func.func @weight_made_of_rows(%x: tensor<8x8xf32>, %w: !w) -> tensor<8x8xf32> {
  %v = mfuse.reshape %w : (!w) -> tensor<8x1xf32>
  %n = mfuse.rms_norm %x eps 1.0e-6 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{rms_norm: the factor is not a weight of the last dim}}
  %y = mfuse.binary mul %n, %v : (tensor<8x8xf32>, tensor<8x1xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
