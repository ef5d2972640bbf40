#include "quincunx/compiler/codegen/loop_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "compiler/codegen/program_builder.h"
#include "quincunx/compiler/codegen/loop_reference.h"
#include "quincunx/compiler/jit/host_machine.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::compiler {
namespace {

using enum Opcode;

// Of the largest result: sums are f64, so that what remains is a few roundings of f32 an instruction.
constexpr double kF32Tolerance = 2e-6;
constexpr double kBFloat16Tolerance = 0x1p-8;

double toleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return kF32Tolerance;
    case DType::kBFloat16: return kBFloat16Tolerance;
    case DType::kFloat16: return 0x1p-11;
    default: return 0;
  }
}

std::vector<Axis> rowsAndColumns(bool reduce_rows, bool reduce_columns) {
  return {{symbol(0), reduce_rows}, {symbol(1), reduce_columns}};
}

LoopProgram softmax(std::vector<Axis> axes, DType dtype = DType::kFloat32) {
  ProgramBuilder b(std::move(axes));
  const int32_t x = b.cast(b.input(dtype, {0, 1}), DType::kFloat32);
  const int32_t e = b.apply(kExp, b.apply(kSub, x, b.apply(kReduceMax, x)));
  b.output(b.cast(b.apply(kDiv, e, b.apply(kReduceSum, e)), dtype), {0, 1});
  return b.build();
}

LoopProgram layerNorm(std::vector<Axis> axes) {
  ProgramBuilder b(std::move(axes));
  const int32_t x = b.input(DType::kFloat32, {0, 1});
  const int32_t weight = b.input(DType::kFloat32, {1});
  const int32_t mean = b.apply(kDiv, b.apply(kReduceSum, x), b.count());
  const int32_t centred = b.apply(kSub, x, mean);
  const int32_t variance = b.apply(kDiv, b.apply(kReduceSum, b.apply(kMul, centred, centred)), b.count());
  const int32_t scale = b.apply(kRsqrt, b.apply(kAdd, variance, b.constant(DType::kFloat32, 1e-5)));
  b.output(b.apply(kMul, b.apply(kMul, centred, scale), weight), {0, 1});
  if (axes.empty() && b.type(mean) == DType::kFloat32) b.output(mean, {0});
  return b.build();
}

LoopProgram geluOfSum() {
  ProgramBuilder b(rowsAndColumns(false, false));
  const int32_t x = b.apply(kAdd, b.input(DType::kFloat32, {0, 1}), b.input(DType::kFloat32, {1}));
  const int32_t phi = b.apply(kErf, b.apply(kMul, x, b.constant(DType::kFloat32, std::sqrt(0.5))));
  const int32_t half = b.apply(kMul, x, b.constant(DType::kFloat32, 0.5));
  b.output(b.apply(kMul, half, b.apply(kAdd, phi, b.constant(DType::kFloat32, 1))), {0, 1});
  return b.build();
}

LoopProgram columnSum(DType dtype) {
  ProgramBuilder b(rowsAndColumns(true, false));
  b.output(b.apply(kReduceSum, b.input(dtype, {0, 1})), {1});
  return b.build();
}

// Inputs in `order` of dims, run by the kernel and by the reference; returns the largest difference over the largest
// element.
void expectReference(const LoopProgram& program, const std::vector<int64_t>& symbols, std::vector<int> order = {},
                     int64_t gap = 1) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.5f, 2.0f);
  std::vector<OwnedTensor> tensors;
  std::vector<TensorView> inputs, outputs, expected;
  const auto shapeOf = [&](const graph::TensorType& type) {
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : type.shape) shape.push_back(evaluate(dim, symbols.data()));
    return shape;
  };
  tensors.reserve(program.inputs.size() + 2 * program.outputs.size());
  for (const auto& type : program.inputs) {
    tensors.emplace_back(type.dtype, shapeOf(type), type.shape.size() == order.size() ? order : std::vector<int>{},
                         gap);
    for (int64_t i = 0; i < tensors.back().size(); ++i) tensors.back().set(i, normal(random));
    inputs.push_back(tensors.back().view());
  }
  for (const auto& type : program.outputs) {
    tensors.emplace_back(type.dtype, shapeOf(type), type.shape.size() == order.size() ? order : std::vector<int>{},
                         gap);
    outputs.push_back(tensors.back().view());
    tensors.emplace_back(type.dtype, shapeOf(type));
    expected.push_back(tensors.back().view());
  }
  const auto kernel = createLoopKernel(program, {});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const Status status = (*kernel)->run(inputs, outputs, symbols);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(runReference(program, inputs, expected, symbols).ok());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OwnedTensor& ours = tensors[inputs.size() + 2 * i];
    const OwnedTensor& theirs = tensors[inputs.size() + 2 * i + 1];
    double largest = 0;
    for (int64_t j = 0; j < theirs.size(); ++j) largest = std::max(largest, std::fabs(theirs.get(j)));
    for (int64_t j = 0; j < theirs.size(); ++j) {
      ASSERT_NEAR(ours.get(j), theirs.get(j), toleranceOf(theirs.view().dtype()) * largest)
          << "element " << j << " of output " << i << " at " << symbols[0] << " x " << symbols[1];
    }
  }
}

const std::vector<std::vector<int64_t>> kSizes = {{1, 1}, {3, 7}, {2, 16}, {5, 33}, {1, 200}, {64, 4}, {17, 129}};

TEST(LoopKernel, ReducesRows) {
  for (const auto& sizes : kSizes) {
    expectReference(softmax(rowsAndColumns(false, true)), sizes);
    expectReference(layerNorm(rowsAndColumns(false, true)), sizes);
  }
}

TEST(LoopKernel, ReducesColumns) {
  for (const auto& sizes : kSizes) {
    expectReference(softmax(rowsAndColumns(true, false)), sizes);
    expectReference(columnSum(DType::kFloat32), sizes);
    expectReference(columnSum(DType::kInt64), sizes);
  }
}

TEST(LoopKernel, ReducesEverything) {
  ProgramBuilder b(rowsAndColumns(true, true));
  b.output(b.apply(kReduceSum, b.input(DType::kFloat32, {0, 1})), {});
  const LoopProgram program = b.build();
  for (const auto& sizes : kSizes) expectReference(program, sizes);
}

TEST(LoopKernel, BroadcastsElementwise) {
  for (const auto& sizes : kSizes) expectReference(geluOfSum(), sizes);
}

TEST(LoopKernel, TakesTransposedAndGappedTensors) {
  for (const auto& sizes : kSizes) {
    expectReference(geluOfSum(), sizes, {1, 0});
    expectReference(softmax(rowsAndColumns(false, true)), sizes, {1, 0});
    expectReference(softmax(rowsAndColumns(true, false)), sizes, {1, 0});
    expectReference(layerNorm(rowsAndColumns(false, true)), sizes, {0, 1}, 3);
  }
}

TEST(LoopKernel, ComputesHalfPrecisionInF32) {
  for (const auto& sizes : kSizes) {
    expectReference(softmax(rowsAndColumns(false, true), DType::kBFloat16), sizes);
    if (hostMachine().has_f16) expectReference(softmax(rowsAndColumns(false, true), DType::kFloat16), sizes);
    expectReference(softmax(rowsAndColumns(true, false), DType::kBFloat16), sizes, {1, 0});
  }
}

TEST(LoopKernel, RunsZeroSizes) {
  expectReference(softmax(rowsAndColumns(false, true)), {0, 5});
  expectReference(columnSum(DType::kFloat32), {0, 5});
  expectReference(columnSum(DType::kFloat32), {5, 0});
  expectReference(geluOfSum(), {0, 0});
}

TEST(LoopKernel, RefusesTheMaximumOfNothing) {
  const auto kernel = createLoopKernel(softmax(rowsAndColumns(false, true)), {});
  ASSERT_TRUE(kernel.ok());
  const OwnedTensor x(DType::kFloat32, {2, 0});
  const OwnedTensor y(DType::kFloat32, {2, 0});
  const Status status = (*kernel)->run(std::vector{x.view()}, std::vector{y.view()}, std::vector<int64_t>{2, 0});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(LoopKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<int64_t> sizes = {300, 1030};
  for (const LoopProgram& program :
       {softmax(rowsAndColumns(false, true)), softmax(rowsAndColumns(true, false)), geluOfSum()}) {
    const auto kernel = createLoopKernel(program, {});
    ASSERT_TRUE(kernel.ok());
    std::vector<OwnedTensor> inputs, results;
    std::vector<TensorView> views;
    for (const auto& type : program.inputs) {
      inputs.emplace_back(type.dtype, type.shape.size() == 2 ? sizes : std::vector<int64_t>{sizes[1]});
      for (int64_t i = 0; i < inputs.back().size(); ++i) inputs.back().set(i, std::sin(static_cast<double>(i)));
      views.push_back(inputs.back().view());
    }
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      results.emplace_back(DType::kFloat32, sizes);
      ASSERT_TRUE((*kernel)->run(views, std::vector{results.back().view()}, sizes).ok());
    }
    set_num_threads(0);
    for (int i = 1; i < 3; ++i) {
      EXPECT_EQ(std::memcmp(results[0].view().data(), results[i].view().data(), results[0].view().size_bytes()), 0);
    }
  }
}

TEST(LoopKernel, KeepsAMeanFarFromZero) {
  constexpr int64_t kColumns = 100003;
  ProgramBuilder b(rowsAndColumns(false, true));
  const int32_t x = b.input(DType::kFloat32, {0, 1});
  const int32_t centred = b.apply(kSub, x, b.apply(kDiv, b.apply(kReduceSum, x), b.count()));
  b.output(b.apply(kDiv, b.apply(kReduceSum, b.apply(kMul, centred, centred)), b.count()), {0});
  const auto kernel = createLoopKernel(b.build(), {});
  ASSERT_TRUE(kernel.ok());
  OwnedTensor values(DType::kFloat32, {1, kColumns});
  const OwnedTensor variance(DType::kFloat32, {1});
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  double sum = 0;
  for (int64_t i = 0; i < kColumns; ++i) {
    values.set(i, 30000 + normal(random));
    sum += values.get(i);
  }
  double expected = 0;
  for (int64_t i = 0; i < kColumns; ++i) expected += std::pow(values.get(i) - sum / kColumns, 2) / kColumns;
  ASSERT_TRUE(
      (*kernel)->run(std::vector{values.view()}, std::vector{variance.view()}, std::vector<int64_t>{1, kColumns}).ok());
  // The mean is rounded to f32: half a unit of 30000, squared.
  EXPECT_NEAR(variance.get(0), expected, 1e-6 + 0x1p-10 * 0x1p-10);
}

TEST(LoopKernel, WrapsIntegers) {
  ProgramBuilder b({{symbol(0), false}});
  const int32_t x = b.input(DType::kInt32, {0});
  b.output(b.cast(b.apply(kAdd, x, x), DType::kInt64), {0});
  b.output(b.apply(kGt, b.apply(kAdd, x, b.constant(DType::kInt32, 1)), x), {0});
  b.output(b.apply(kFloorDiv, b.apply(kMul, x, b.constant(DType::kInt32, 2)), b.constant(DType::kInt32, 2)), {0});
  const auto kernel = createLoopKernel(b.build(), {});
  ASSERT_TRUE(kernel.ok());
  const std::vector<int32_t> numbers = {INT32_MAX, 5, INT32_MIN, 46341, -7, 100000};
  for (const int64_t size : {1, 3, 30}) {
    OwnedTensor in(DType::kInt32, {size});
    const OwnedTensor twice(DType::kInt64, {size}), greater(DType::kBool, {size}), halved(DType::kInt32, {size});
    for (int64_t i = 0; i < size; ++i) in.set(i, numbers[i % 6]);
    ASSERT_TRUE((*kernel)
                    ->run(std::vector{in.view()}, std::vector{twice.view(), greater.view(), halved.view()},
                          std::vector<int64_t>{size})
                    .ok());
    for (int64_t i = 0; i < size; ++i) {
      const auto number = static_cast<uint32_t>(numbers[i % 6]);
      const auto doubled = static_cast<int32_t>(number + number);
      EXPECT_EQ(twice.get(i), doubled);
      EXPECT_EQ(greater.get(i), static_cast<int32_t>(number + 1) > numbers[i % 6]);
      EXPECT_EQ(halved.get(i), std::floor(doubled / 2.0));
    }
  }
}

TEST(LoopKernel, TreatsNanAndInfinityAsEagerDoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  ProgramBuilder b(rowsAndColumns(false, true));
  const int32_t x = b.input(DType::kFloat32, {0, 1});
  b.output(b.apply(kReduceMax, x), {0});
  const int32_t e = b.apply(kExp, b.apply(kSub, x, b.apply(kReduceMax, x)));
  b.output(b.apply(kReduceSum, b.apply(kDiv, e, b.apply(kReduceSum, e))), {0});
  const auto kernel = createLoopKernel(b.build(), {});
  ASSERT_TRUE(kernel.ok());
  for (const int64_t columns : {5, 37}) {
    OwnedTensor in(DType::kFloat32, {4, columns});
    for (int64_t i = 0; i < in.size(); ++i) in.set(i, std::cos(static_cast<double>(i)));
    in.set(columns + 3, nan);
    in.set(2 * columns + 4, infinity);
    for (int64_t i = 0; i < columns; ++i) in.set(3 * columns + i, -infinity);
    const OwnedTensor max(DType::kFloat32, {4}), sum(DType::kFloat32, {4});
    ASSERT_TRUE((*kernel)
                    ->run(std::vector{in.view()}, std::vector{max.view(), sum.view()}, std::vector<int64_t>{4, columns})
                    .ok());
    EXPECT_NEAR(sum.get(0), 1, 1e-6);
    EXPECT_TRUE(std::isnan(max.get(1)));
    EXPECT_EQ(max.get(2), infinity);
    for (const int row : {1, 2, 3}) EXPECT_TRUE(std::isnan(sum.get(row))) << row;
  }
}

TEST(LoopKernel, NamesTheWrongView) {
  const auto kernel = createLoopKernel(geluOfSum(), {});
  ASSERT_TRUE(kernel.ok());
  const OwnedTensor x(DType::kFloat32, {2, 3}), bias(DType::kFloat32, {3}), short_bias(DType::kFloat32, {2});
  const OwnedTensor half(DType::kFloat16, {2, 3}), y(DType::kFloat32, {2, 3});
  const std::vector<int64_t> sizes = {2, 3};
  const auto message = [&](const TensorView& a, const TensorView& b, const TensorView& out,
                           std::vector<int64_t> symbols) {
    const Status status = (*kernel)->run(std::vector{a, b}, std::vector{out}, symbols);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message(x.view(), short_bias.view(), y.view(), sizes), "inputs[1] is float32[2], expected float32[3]");
  EXPECT_EQ(message(half.view(), bias.view(), y.view(), sizes), "inputs[0] is float16[2, 3], expected float32[2, 3]");
  EXPECT_EQ(message(x.view(), bias.view(), x.view(), sizes),
            "outputs[0] overlaps inputs[0], expected memory of its own");
  EXPECT_EQ(message(x.view(), bias.view(), y.view(), {2}), "symbols has 1 entries, expected 2");
  const float zero = 0;
  const TensorView repeated =
      TensorView::strided(const_cast<float*>(&zero), DType::kFloat32, sizes, std::vector<int64_t>{0, 0}).value();
  EXPECT_NE(message(x.view(), bias.view(), repeated, sizes).find("outputs[0]: elements share memory"),
            std::string::npos);
}

}  // namespace
}  // namespace qx::compiler
