// RUN: %qx-opt %s --qx-decompose-composites=products=true | %FileCheck %s
// RUN: %qx-opt %s --qx-decompose-composites=products=true --qx-fuse-silu --qx-fuse-gelu --qx-fuse-softmax --qx-fuse-layer-norm --qx-fuse-rms-norm --qx-fuse-swiglu --qx-fuse-rope --qx-fuse-matmul-epilogue 2>/dev/null | %FileCheck %s --check-prefix=AGAIN
!t = tensor<4x8xf32>
!h = tensor<4x8xbf16>
!w = tensor<8xf32>

// What the decomposition writes, the patterns read: the round trip is the identity.
// CHECK-LABEL: @elementwise
// CHECK-NOT: {{silu|gelu|swiglu}}
// AGAIN-LABEL: @elementwise
// AGAIN-NEXT: mfuse.unary silu %arg0
// AGAIN-NEXT: mfuse.unary gelu_erf
// AGAIN-NEXT: mfuse.unary gelu_tanh
// AGAIN-NEXT: mfuse.unary gelu_quick
// AGAIN-NEXT: mfuse.binary swiglu
// AGAIN-NEXT: return
func.func @elementwise(%x: !t) -> !t {
  %a = mfuse.unary silu %x : (!t) -> !t
  %b = mfuse.unary gelu_erf %a : (!t) -> !t
  %c = mfuse.unary gelu_tanh %b : (!t) -> !t
  %d = mfuse.unary gelu_quick %c : (!t) -> !t
  %e = mfuse.binary swiglu %d, %x : (!t, !t) -> !t
  return %e : !t
}

// CHECK-LABEL: @norms
// CHECK-NOT: {{rms_norm|layer_norm|mfuse.softmax}}
// AGAIN-LABEL: @norms
// AGAIN-NEXT: mfuse.rms_norm %arg0 weight %arg1
// AGAIN-NEXT: mfuse.layer_norm {{.*}} weight %arg1 bias %arg1 num_dims 1
// AGAIN-NEXT: mfuse.layer_norm {{.*}} outside correction 1.0
// AGAIN-NEXT: mfuse.softmax {{.*}} dim 0 :
// AGAIN-NEXT: mfuse.softmax {{.*}} dim 1 log
// AGAIN-NEXT: return
func.func @norms(%x: !t, %w: !w) -> !t {
  %a = mfuse.rms_norm %x weight %w eps 1.0e-6 : (!t, !w) -> !t
  %b = mfuse.layer_norm %a weight %w bias %w num_dims 1 eps 1.0e-5 correction 0.0 : (!t, !w, !w) -> !t
  %c = mfuse.layer_norm %b num_dims 1 eps 1.0e-5 outside correction 1.0 : (!t) -> !t
  %d = mfuse.softmax %c dim 0 : (!t) -> !t
  %e = mfuse.softmax %d dim 1 log : (!t) -> !t
  return %e : !t
}

// CHECK-LABEL: @ropes
// CHECK-NOT: mfuse.rope
// AGAIN-LABEL: @ropes
// AGAIN-NEXT: mfuse.rope half %arg0, %arg1, %arg2
// AGAIN-NEXT: mfuse.rope interleaved
// AGAIN-NEXT: return
func.func @ropes(%x: !t, %cos: !w, %sin: !w) -> !t {
  %a = mfuse.rope half %x, %cos, %sin : (!t, !w, !w) -> !t
  %b = mfuse.rope interleaved %a, %cos, %sin : (!t, !w, !w) -> !t
  return %b : !t
}

// CHECK-LABEL: @product
// CHECK: mfuse.matmul %arg0, %arg1 : 
// AGAIN-LABEL: @product
// AGAIN: mfuse.matmul %arg0, %arg1 scale 2.000000e+00 bias %arg2 activation relu multiplier %arg3 residual %arg3
func.func @product(%x: tensor<4x5xf32>, %v: tensor<5x8xf32>, %w: !w, %r: !t) -> !t {
  %y = mfuse.matmul %x, %v scale 2.0 bias %w activation relu multiplier %r residual %r
      : (tensor<4x5xf32>, tensor<5x8xf32>, !w, !t, !t) -> !t
  return %y : !t
}

// Half precision is widened once and rounded once.
// CHECK-LABEL: @half_precision
// CHECK-COUNT-1: mfuse.cast %arg0 : (tensor<4x8xbf16>) -> tensor<4x8xf32>
// CHECK: mfuse.unary rsqrt {{.*}} -> tensor<4x1xf32>
// CHECK-COUNT-1: -> tensor<4x8xbf16>
// CHECK-NEXT: return
func.func @half_precision(%x: !h) -> !h {
  %a = mfuse.rms_norm %x eps 1.0e-6 : (!h) -> !h
  return %a : !h
}

// CHECK-LABEL: @sum_and_norm
// CHECK: %[[SUM:.*]] = mfuse.binary add %arg0, %arg1
// CHECK: mfuse.binary mul %[[SUM]], %[[SUM]]
// CHECK: return %{{.*}}, %[[SUM]]
func.func @sum_and_norm(%x: !t, %r: !t) -> (!t, !t) {
  %y, %s = mfuse.add_rms_norm %x, %r eps 1.0e-6 : (!t, !t) -> (!t, !t)
  return %y, %s : !t, !t
}
