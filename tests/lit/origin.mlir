// RUN: %qx-opt %s --qx-fuse-silu --qx-fuse-swiglu --cse --mlir-print-debuginfo 2>/dev/null | %FileCheck %s
// What a rewrite makes stands for all that it took; CSE takes two operations for one whatever their origins.
!t = tensor<4x8xf32>

// CHECK-LABEL: @merged
// CHECK: mfuse.binary swiglu %arg0, %arg1 {{.*}} loc(#[[LOC:.*]])
// CHECK: mfuse.unary exp
// CHECK-NOT: mfuse.unary exp
func.func @merged(%x: !t, %u: !t) -> (!t, !t, !t) {
  %s = mfuse.unary sigmoid %x : (!t) -> !t loc(fused<#mfuse.origin<nodes = [0], values = [2]>>[unknown])
  %a = mfuse.binary mul %x, %s : (!t, !t) -> !t loc(fused<#mfuse.origin<nodes = [1], values = [3]>>[unknown])
  %y = mfuse.binary mul %a, %u : (!t, !t) -> !t loc(fused<#mfuse.origin<nodes = [4], values = [6]>>[unknown])
  %p = mfuse.unary exp %y : (!t) -> !t loc(fused<#mfuse.origin<nodes = [5], values = [7]>>[unknown])
  %q = mfuse.unary exp %y : (!t) -> !t loc(fused<#mfuse.origin<nodes = [6], values = [8]>>[unknown])
  return %y, %p, %q : !t, !t, !t
}
// CHECK: #[[LOC]] = loc(fused<#mfuse.origin<nodes = [0, 1, 4], values = [6]>>[
