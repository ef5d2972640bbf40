// RUN: %qx-opt %s --qx-fuse-softmax --verify-diagnostics | %FileCheck %s
!t = tensor<4x8xf32>
!last = tensor<4x1xf32>
!first = tensor<1x8xf32>

// CHECK-LABEL: @over_the_last_dim
// CHECK-NEXT: mfuse.softmax %arg0 dim 1 :
// CHECK-NEXT: return
func.func @over_the_last_dim(%x: !t) -> !t {
  %m = mfuse.reduce max %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  // expected-remark @below {{softmax: fused}}
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @over_the_first_dim
// CHECK-NEXT: mfuse.softmax %arg0 dim 0 :
func.func @over_the_first_dim(%x: !t) -> !t {
  %m = mfuse.reduce max %x dims [0] keepdim : (!t) -> !first
  %d = mfuse.binary sub %x, %m : (!t, !first) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [0] keepdim : (!t) -> !first
  // expected-remark @below {{softmax: fused}}
  %y = mfuse.binary div %e, %s : (!t, !first) -> !t
  return %y : !t
}

// CHECK-LABEL: @logarithm
// CHECK-NEXT: mfuse.softmax %arg0 dim 1 log :
// CHECK-NEXT: return
func.func @logarithm(%x: !t) -> !t {
  %m = mfuse.reduce max %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  %l = mfuse.unary log %s : (!last) -> !last
  // expected-remark @below {{softmax: fused}}
  %y = mfuse.binary sub %d, %l : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @dims_differ
// CHECK-NOT: mfuse.softmax
func.func @dims_differ(%x: !t) -> !t {
  %m = mfuse.reduce max %x dims [0] keepdim : (!t) -> !first
  %d = mfuse.binary sub %x, %m : (!t, !first) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  // expected-remark @below {{softmax: the maximum and the sum are over different dims}}
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @without_maximum
// CHECK-NOT: mfuse.softmax
func.func @without_maximum(%x: !t) -> !t {
  %e = mfuse.unary exp %x : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  // expected-remark @below {{softmax: no maximum of the operand is subtracted}}
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @minimum_instead
// CHECK-NOT: mfuse.softmax
func.func @minimum_instead(%x: !t) -> !t {
  %m = mfuse.reduce min %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  // expected-remark @below {{softmax: no maximum of the operand is subtracted}}
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y : !t
}

// A sum of 8 sums against 8 values that only looks alike because the shape is square.
// CHECK-LABEL: @without_keepdim
// CHECK-NOT: mfuse.softmax
func.func @without_keepdim(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %m = mfuse.reduce max %x dims [1] keepdim : (tensor<8x8xf32>) -> tensor<8x1xf32>
  %d = mfuse.binary sub %x, %m : (tensor<8x8xf32>, tensor<8x1xf32>) -> tensor<8x8xf32>
  %e = mfuse.unary exp %d : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = mfuse.reduce sum %e dims [1] : (tensor<8x8xf32>) -> tensor<8xf32>
  // expected-remark @below {{softmax: a reduction does not keep its dim}}
  %y = mfuse.binary div %e, %s : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// CHECK-LABEL: @over_both_dims
// CHECK-NOT: mfuse.softmax
func.func @over_both_dims(%x: !t) -> !t {
  %m = mfuse.reduce max %x dims [0, 1] keepdim : (!t) -> tensor<1x1xf32>
  %d = mfuse.binary sub %x, %m : (!t, tensor<1x1xf32>) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [0, 1] keepdim : (!t) -> tensor<1x1xf32>
  // expected-remark @below {{softmax: a sum over several dims}}
  %y = mfuse.binary div %e, %s : (!t, tensor<1x1xf32>) -> !t
  return %y : !t
}

// CHECK-LABEL: @second_user
// CHECK-NOT: mfuse.softmax
func.func @second_user(%x: !t) -> (!t, !last) {
  %m = mfuse.reduce max %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  // expected-remark @below {{softmax: an inner result of mfuse.reduce has another user, func.return}}
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y, %s : !t, !last
}

// CHECK-LABEL: @sum_of_another_tensor
// CHECK-NOT: mfuse.softmax
func.func @sum_of_another_tensor(%x: !t, %v: !t) -> !t {
  %m = mfuse.reduce max %x dims [1] keepdim : (!t) -> !last
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %v dims [1] keepdim : (!t) -> !last
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y : !t
}

// CHECK-LABEL: @write_between
// CHECK-NOT: mfuse.softmax
func.func @write_between(%x: !t) -> !t {
  %m = mfuse.reduce max %x dims [1] keepdim : (!t) -> !last
  %w = mfuse.opaque "aten.mul_.Tensor" node 3 writes (%x) : (!t) -> !t
  %d = mfuse.binary sub %x, %m : (!t, !last) -> !t
  %e = mfuse.unary exp %d : (!t) -> !t
  %s = mfuse.reduce sum %e dims [1] keepdim : (!t) -> !last
  // expected-remark @below {{softmax: memory is written to in between}}
  %y = mfuse.binary div %e, %s : (!t, !last) -> !t
  return %y : !t
}
