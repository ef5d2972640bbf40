// RUN: %qx-opt %s --split-input-file --verify-diagnostics
// Each numbered constraint of the dialect, broken once.

func.func @unary_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects a result of the operand's element type, got 'f16'}}
  %y = mfuse.unary exp %x : (tensor<4xf32>) -> tensor<4xf16>
  return
}

// -----
func.func @unary_c1_test(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects a result of i1, got 'f32'}}
  %y = mfuse.unary isnan %x : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @unary_c2(%x: tensor<4xi32>) {
  // expected-error @below {{(C2) does not take elements of 'i32'}}
  %y = mfuse.unary exp %x : (tensor<4xi32>) -> tensor<4xi32>
  return
}

// -----
func.func @elementwise_e1(%x: tensor<4xf32>, %z: tensor<3xf32>) {
  // expected-error @below {{(E1) expects operands that broadcast to}}
  %y = mfuse.binary add %x, %z : (tensor<4xf32>, tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @elementwise_e2(%c: f64) {
  // expected-error @below {{(E2) expects at least one tensor operand}}
  %y = mfuse.binary add %c, %c : (f64, f64) -> tensor<f64>
  return
}

// -----
func.func @elementwise_e3(%x: tensor<4xf32>, %z: tensor<4xf16>) {
  // expected-error @below {{(E3) expects tensor operands of one element type, got 'f32' and 'f16'}}
  %y = mfuse.binary add %x, %z : (tensor<4xf32>, tensor<4xf16>) -> tensor<4xf32>
  return
}

// -----
func.func @binary_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects a result of 'f32', got 'f16'}}
  %y = mfuse.binary add %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf16>
  return
}

// -----
func.func @binary_c2(%x: tensor<4xi32>, %c: f64) {
  // expected-error @below {{(C2) expects no f64 scalar beside tensors of 'i32'}}
  %y = mfuse.binary add %x, %c : (tensor<4xi32>, f64) -> tensor<4xi32>
  return
}

// -----
func.func @binary_c3(%x: tensor<4xf32>) {
  // expected-error @below {{(C3) does not take elements of 'f32'}}
  %y = mfuse.binary bitwise_and %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @compare_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects a result of i1, got 'f32'}}
  %y = mfuse.compare lt %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @select_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects a condition of i1}}
  %y = mfuse.select %x, %x, %x : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @cast_c1(%x: tensor<1xf32>) {
  // expected-error @below {{(C1) expects equal shapes}}
  %y = mfuse.cast %x : (tensor<1xf32>) -> tensor<4xf16>
  return
}

// -----
func.func @reshape_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects as many elements in the result}}
  %y = mfuse.reshape %x : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----
func.func @permute_c1(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C1) expects each of 0 to 1 once}}
  %y = mfuse.permute %x [0, 0] : (tensor<4x5xf32>) -> tensor<4x4xf32>
  return
}

// -----
func.func @permute_c2(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C2) expects the operand's sizes in the order of the permutation}}
  %y = mfuse.permute %x [1, 0] : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @broadcast_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects an operand that broadcasts to}}
  %y = mfuse.broadcast %x : (tensor<4xf32>) -> tensor<4x1xf32>
  return
}

// -----
func.func @slice_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects dim in [0, 1), got 1}}
  %y = mfuse.slice %x dim 1 start 0 step 1 : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @slice_c2(%x: tensor<4xf32>) {
  // expected-error @below {{(C2) expects start >= 0 and step >= 1, got 0 and 0}}
  %y = mfuse.slice %x dim 0 start 0 step 0 : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @slice_c3(%x: tensor<4xf32>) {
  // expected-error @below {{(C3) expects elements inside the operand's 4, got 3 from 2}}
  %y = mfuse.slice %x dim 0 start 2 step 1 : (tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----
func.func @cat_c3(%x: tensor<4xf32>) {
  // expected-error @below {{(C3) expects a size of 8 along dim 0}}
  %y = mfuse.cat %x, %x dim 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<7xf32>
  return
}

// -----
func.func @rearrange(%x: tensor<4xf32>) {
  // expected-error @below {{expects operands of the result's element type 'f16'}}
  %y = mfuse.reshape %x : (tensor<4xf32>) -> tensor<4xf16>
  return
}

// -----
func.func @reduce_c1(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C1) expects increasing dims in [0, 2), got 0}}
  %y = mfuse.reduce sum %x dims [1, 0] : (tensor<4x5xf32>) -> tensor<f32>
  return
}

// -----
func.func @reduce_c2(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C2) expects the operand's shape}}
  %y = mfuse.reduce sum %x dims [1] keepdim : (tensor<4x5xf32>) -> tensor<4xf32>
  return
}

// -----
func.func @reduce_c3(%x: tensor<4x5xi64>) {
  // expected-error @below {{(C3) does not reduce 'i64' to 'i64'}}
  %y = mfuse.reduce mean %x dims [1] : (tensor<4x5xi64>) -> tensor<4xi64>
  return
}

// -----
func.func @matmul_c1(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C1) expects equal sizes to sum over}}
  %y = mfuse.matmul %x, %x : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @matmul_c3(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C3) expects leading sizes, rows and columns}}
  %y = mfuse.matmul %x, %x transposed : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @matmul_c5(%x: tensor<4x5xf32>, %b: tensor<5xf32>) {
  // expected-error @below {{(C5) expects a bias of rank 1 with one element a column}}
  %y = mfuse.matmul %x, %x transposed bias %b : (tensor<4x5xf32>, tensor<4x5xf32>, tensor<5xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @matmul_c6(%x: tensor<4x5xf32>, %m: tensor<4x1xf32>) {
  // expected-error @below {{(C6) expects a multiplier of the result's shape}}
  %y = mfuse.matmul %x, %x transposed multiplier %m : (tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  return
}

// -----
func.func @matmul_c7(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C7) does not take the activation exp}}
  %y = mfuse.matmul %x, %x transposed activation exp : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x4xf32>
  return
}

// -----
func.func @rms_norm_c2(%x: tensor<4x5xf32>, %w: tensor<4xf32>) {
  // expected-error @below {{(C2) expects a weight of the last dimension}}
  %y = mfuse.rms_norm %x weight %w eps 1.0e-6 : (tensor<4x5xf32>, tensor<4xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @rms_norm_c3(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C3) expects eps >= 0}}
  %y = mfuse.rms_norm %x eps -1.0e-6 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @layer_norm_c1(%x: tensor<4x5xf32>) {
  // expected-error @below {{num_dims in [1, 2]}}
  %y = mfuse.layer_norm %x num_dims 3 eps 1.0e-6 correction 0.0 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @softmax_c1(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C1) expects a result of the operand's type and dim in [0, 2), got 2}}
  %y = mfuse.softmax %x dim 2 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @rope_c1(%x: tensor<4x5xf32>) {
  // expected-error @below {{(C1) expects a known even last size}}
  %y = mfuse.rope half %x, %x, %x : (tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  return
}

// -----
func.func @rope_c2(%x: tensor<4x6xf32>, %c: tensor<4x1xf32>) {
  // expected-error @below {{(C2) expects cos and sin that broadcast to}}
  %y = mfuse.rope half %x, %c, %c : (tensor<4x6xf32>, tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
  return
}

// -----
func.func @iota_c1() {
  %c = mfuse.scalar 0 : i64
  // expected-error @below {{(C1) expects a result of rank 1}}
  %y = mfuse.iota %c, %c : (i64, i64) -> tensor<f32>
  return
}

// -----
func.func @size_c1() {
  // expected-error @below {{(C1) expects a map without dimensions and with one result}}
  %y = mfuse.size affine_map<(d0)[s0] -> (d0 + s0)>
  return
}
