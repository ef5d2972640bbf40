// RUN: %qx-opt %s --mlir-print-debuginfo | %qx-opt --mlir-print-debuginfo | %FileCheck %s
// Every operation is printed as it is read.
!t = tensor<4x8xf32>
!d = tensor<?x8xf32, affine_map<()[s0, s1] -> (s0 * 2 + 1, 8)>>

// CHECK-DAG: #[[SIZE:.*]] = affine_map<()[s0, s1] -> (s1 + 3)>
// CHECK-DAG: #[[MAP:.*]] = affine_map<()[s0, s1] -> (s0 * 2 + 1, 8)>
// CHECK-LABEL: @sources
func.func @sources() -> (tensor<2xi64>, !t, tensor<5xi32>, tensor<3xf32>) {
  // CHECK: mfuse.constant dense<[1, 2]> : tensor<2xi64>
  %c = mfuse.constant dense<[1, 2]> : tensor<2xi64>
  // CHECK: mfuse.scalar 2.500000e+00 : f64
  %v = mfuse.scalar 2.5 : f64
  // CHECK: mfuse.full %{{.*}} : (f64) -> tensor<4x8xf32>
  %f = mfuse.full %v : (f64) -> !t
  // CHECK: mfuse.size #[[SIZE]]
  %s = mfuse.size affine_map<()[s0, s1] -> (s1 + 3)>
  // CHECK: mfuse.iota %{{.*}}, %{{.*}} : (i64, i64) -> tensor<5xi32>
  %i = mfuse.iota %s, %s : (i64, i64) -> tensor<5xi32>
  // CHECK: mfuse.weight 7 : tensor<3xf32>
  %w = mfuse.weight 7 : tensor<3xf32>
  return %c, %f, %i, %w : tensor<2xi64>, !t, tensor<5xi32>, tensor<3xf32>
}

// CHECK-LABEL: @dynamic
// CHECK-SAME: tensor<?x8xf32, #[[MAP]]>
func.func @dynamic(%x: !d) -> !d {
  // CHECK: mfuse.unary relu
  %y = mfuse.unary relu %x : (!d) -> !d
  // CHECK: mfuse.opaque "aten.add_.Tensor" node 3 writes(%{{.*}}, %{{.*}}) {{.*}} loc(#[[LOC:.*]])
  %o = mfuse.opaque "aten.add_.Tensor" node 3 writes (%y, %x) : (!d, !d) -> !d loc(fused<#mfuse.origin<nodes = [3, 4], values = [9]>>[unknown])
  // CHECK: mfuse.reload %{{.*}} epoch 1
  %r = mfuse.reload %x epoch 1 : !d
  // CHECK: mfuse.compare lt
  %l = mfuse.compare lt %o, %r : (!d, !d) -> tensor<?x8xi1, affine_map<()[s0, s1] -> (s0 * 2 + 1, 8)>>
  // CHECK: mfuse.select
  %z = mfuse.select %l, %o, %r : (tensor<?x8xi1, affine_map<()[s0, s1] -> (s0 * 2 + 1, 8)>>, !d, !d) -> !d
  return %z : !d
}
// CHECK: #[[LOC]] = loc(fused<#mfuse.origin<nodes = [3, 4], values = [9]>>[
