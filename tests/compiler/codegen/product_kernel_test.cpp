#include "quincunx/compiler/codegen/product_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/codegen/program_builder.h"

namespace qx::compiler {
namespace {

constexpr double kTolerance = 1e-5;

graph::TensorType f32(const std::vector<int64_t>& shape) {
  graph::TensorType type{DType::kFloat32, {}};
  for (const int64_t size : shape) type.shape.push_back(known(size));
  return type;
}

OwnedTensor numbers(const std::vector<int64_t>& shape, int seed) {
  OwnedTensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, static_cast<double>((i * 37 + seed * 11) % 23 - 11) / 8);
  return tensor;
}

// gelu(0.5 x w + bias) * multiplier + residual, x [rows, 5], w [9, 5] transposed.
struct Product {
  explicit Product(int64_t rows)
      : inputs{numbers({rows, 5}, 1), numbers({9, 5}, 2), numbers({9}, 3), numbers({rows, 9}, 4),
               numbers({rows, 9}, 5)} {
    for (const OwnedTensor& input : inputs) {
      const auto shape = input.view().shape();
      program.inputs.push_back(f32({shape.begin(), shape.end()}));
    }
    program.output = f32({rows, 9});
    program.bias = 2;
    program.multiplier = 3;
    program.residual = 4;
    program.transpose_weight = true;
    program.activation = kernels::Activation::kGeluErf;
    program.scale = 0.5;
  }

  double expected(int64_t row, int64_t column) const {
    double sum = 0;
    for (int64_t k = 0; k < 5; ++k) sum += inputs[0].get(row * 5 + k) * inputs[1].get(column * 5 + k);
    const double x = 0.5 * sum + inputs[2].get(column);
    const double gelu = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    return gelu * inputs[3].get(row * 9 + column) + inputs[4].get(row * 9 + column);
  }

  std::vector<TensorView> views() const {
    std::vector<TensorView> result;
    for (const OwnedTensor& input : inputs) result.push_back(input.view());
    return result;
  }

  std::vector<OwnedTensor> inputs;
  ProductProgram program;
};

TEST(ProductKernel, ComputesTheEpilogueInItsOrder) {
  for (const int64_t rows : {0, 1, 3, 17}) {
    const Product product(rows);
    const auto kernel = createProductKernel(product.program);
    const OwnedTensor out(DType::kFloat32, {rows, 9});
    const Status status = kernel->run(product.views(), std::vector{out.view()}, {});
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t i = 0; i < rows * 9; ++i) EXPECT_NEAR(out.get(i), product.expected(i / 9, i % 9), kTolerance) << i;
  }
}

TEST(ProductKernel, IsTheSameToTheBitWithAPackedWeight) {
  const Product product(7);
  const auto kernel = createProductKernel(product.program);
  const PackingKernel* const packing = kernel->packing();
  ASSERT_NE(packing, nullptr);
  EXPECT_EQ(packing->weight(), 1);
  const auto right = packing->rightOperand(product.views()[1]);
  ASSERT_TRUE(right.ok());
  std::vector<float> packed(static_cast<size_t>(*kernels::packed_matrix_size(right->size(0), right->size(1))));
  ASSERT_TRUE(kernels::pack_b(*right, packed).ok());
  const OwnedTensor plain(DType::kFloat32, {7, 9}), fast(DType::kFloat32, {7, 9});
  ASSERT_TRUE(kernel->run(product.views(), std::vector{plain.view()}, {}).ok());
  ASSERT_TRUE(packing->runPacked(product.views(), std::vector{fast.view()}, packed).ok());
  for (int64_t i = 0; i < 63; ++i) EXPECT_EQ(plain.get(i), fast.get(i)) << i;
  const std::span<const float> half(packed.data(), packed.size() / 2);
  EXPECT_EQ(packing->runPacked(product.views(), std::vector{fast.view()}, half).code(), StatusCode::kInvalidArgument);
}

// [2, 3, 9] read as six rows, from dims that lie the other way round in memory.
TEST(ProductKernel, TakesLeadingDimsOfAnyStrides) {
  const Product product(6);
  ProductProgram program = product.program;
  for (const int32_t input : {0, 3, 4})
    program.inputs[input].shape.insert(program.inputs[input].shape.begin(), known(2));
  for (const int32_t input : {0, 3, 4}) program.inputs[input].shape[1] = known(3);
  program.output = f32({2, 3, 9});
  const auto turned = [](const TensorView& view, std::vector<float>& storage) {
    const int64_t columns = view.size(1);
    storage.resize(static_cast<size_t>(view.num_elements()));
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      const int64_t row = i / columns, to = (row % 3) * 2 + row / 3;
      storage[static_cast<size_t>(to * columns + i % columns)] = view.data_as<float>()[i];
    }
    const std::vector<int64_t> shape{2, 3, columns}, strides{columns, 2 * columns, 1};
    return *TensorView::strided(storage.data(), DType::kFloat32, shape, strides);
  };
  std::vector<float> storage[4];
  std::vector<TensorView> views = product.views();
  views[0] = turned(views[0], storage[0]);
  views[3] = turned(views[3], storage[1]);
  views[4] = turned(views[4], storage[2]);
  storage[3].resize(54);
  const std::vector<int64_t> shape{2, 3, 9}, strides{9, 18, 1};
  const TensorView out = *TensorView::strided(storage[3].data(), DType::kFloat32, shape, strides);
  const Status status = createProductKernel(program)->run(views, std::vector{out}, {});
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t row = 0; row < 6; ++row) {
    for (int64_t column = 0; column < 9; ++column) {
      const float actual = out.data_as<float>()[row / 3 * 9 + row % 3 * 18 + column];
      EXPECT_NEAR(actual, product.expected(row, column), kTolerance) << row << ", " << column;
    }
  }
}

TEST(ProductKernel, PassesNanOn) {
  Product product(2);
  product.inputs[0].set(0, std::numeric_limits<double>::quiet_NaN());
  const OwnedTensor out(DType::kFloat32, {2, 9});
  ASSERT_TRUE(createProductKernel(product.program)->run(product.views(), std::vector{out.view()}, {}).ok());
  EXPECT_TRUE(std::isnan(out.get(0)));
  EXPECT_FALSE(std::isnan(out.get(9)));
}

TEST(ProductKernel, NamesTheWrongView) {
  const Product product(2);
  const auto kernel = createProductKernel(product.program);
  const OwnedTensor out(DType::kFloat32, {2, 9}), vector(DType::kFloat32, {9}), wide(DType::kFloat64, {2, 5});
  const auto message = [&](const std::vector<TensorView>& inputs, const TensorView& output) {
    const Status status = kernel->run(inputs, std::vector{output}, {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message({}, out.view()), "expected 5 inputs and 1 output, got 0 and 1");
  EXPECT_EQ(message(product.views(), vector.view()), "outputs[0] is float32[9], expected float32 of 2 dims");
  std::vector<TensorView> views = product.views();
  views[0] = wide.view();
  EXPECT_EQ(message(views, out.view()), "inputs[0] is float64[2, 5], expected float32 of 2 dims");
}

TEST(ProductKernel, SaysWhatItComputes) {
  EXPECT_EQ(
      createProductKernel(Product(2).program)->to_string(),
      "product of input 0 and input 1 transposed scale 0.500000 bias input 2 activation gelu_erf multiplier input 3"
      " residual input 4\n");
}

}  // namespace
}  // namespace qx::compiler
