#include "quincunx/kernels/attention/attention_backward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/attention/gradient_reference.h"
#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

struct Case {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 7, keys = 9, head_dim = 8, value_dim = 8;
  bool causal = false;
  bool has_bias = false;
  std::vector<int64_t> lengths = {};

  int64_t length(int64_t item) const { return lengths.empty() ? keys : lengths[static_cast<size_t>(item)]; }
};

struct Tensors {
  Case shape;
  std::vector<float> query, key, value, output, lse, output_grad, lse_grad, query_grad, key_grad, value_grad, bias;

  explicit Tensors(const Case& c)
      : shape(c),
        query(normal_values(c.batch * c.heads * c.queries * c.head_dim, 1)),
        key(normal_values(c.batch * c.key_heads * c.keys * c.head_dim, 2)),
        value(normal_values(c.batch * c.key_heads * c.keys * c.value_dim, 3)),
        output(static_cast<size_t>(c.batch * c.heads * c.queries * c.value_dim)),
        lse(static_cast<size_t>(c.batch * c.heads * c.queries)),
        output_grad(normal_values(c.batch * c.heads * c.queries * c.value_dim, 4)),
        lse_grad(normal_values(c.batch * c.heads * c.queries, 5)),
        query_grad(query.size(), 99.0f),
        key_grad(key.size(), 99.0f),
        value_grad(value.size(), 99.0f),
        bias(normal_values(c.queries * c.keys, 6)) {
    for (size_t i = 0; i < bias.size(); i += 5) bias[i] = -INFINITY;
  }

  TensorView of_queries(std::vector<float>& values, int64_t width) {
    return f32_view(values, {shape.batch, shape.heads, shape.queries, width});
  }
  TensorView of_keys(std::vector<float>& values, int64_t width) {
    return f32_view(values, {shape.batch, shape.key_heads, shape.keys, width});
  }
  AttentionForward forward() {
    return {of_queries(query, shape.head_dim), of_keys(key, shape.head_dim), of_keys(value, shape.value_dim),
            of_queries(output, shape.value_dim)};
  }
  AttentionOptions options() {
    AttentionOptions result;
    result.causal = shape.causal;
    result.key_lengths = shape.lengths;
    result.log_sum_exp = f32_view(lse, {shape.batch, shape.heads, shape.queries});
    if (shape.has_bias) {
      result.attn_mask = strided_view(bias.data(), DType::kFloat32,
                                      {shape.batch, shape.heads, shape.queries, shape.keys}, {0, 0, shape.keys, 1});
    }
    return result;
  }
  AttentionGradients gradients() {
    return {of_queries(output_grad, shape.value_dim), f32_view(lse_grad, {shape.batch, shape.heads, shape.queries})};
  }
  AttentionInputGradients result() {
    return {of_queries(query_grad, shape.head_dim), of_keys(key_grad, shape.head_dim),
            of_keys(value_grad, shape.value_dim)};
  }
  Status run() {
    const AttentionForward f = forward();
    QX_RETURN_IF_ERROR(attention(f.query, f.key, f.value, options(), f.output));
    return attention_backward(f, options(), gradients(), result());
  }
};

ReferenceGradients expected_gradients(const Tensors& t) {
  const Case& c = t.shape;
  ReferenceGradients result({t.query, t.key, t.value, t.output_grad, t.lse_grad, c.head_dim, c.value_dim});
  for (int64_t row = 0; row < c.batch * c.heads * c.queries; ++row) {
    const int64_t item = row / (c.heads * c.queries), head = row / c.queries % c.heads, p = row % c.queries;
    const int64_t first_key = (item * c.key_heads + head / (c.heads / c.key_heads)) * c.keys;
    const int64_t end = c.causal ? std::min(c.length(item), p + 1 + c.keys - c.queries) : c.length(item);
    std::vector<int64_t> keys;
    std::vector<double> biases;
    for (int64_t j = 0; j < end; ++j) {
      keys.push_back(first_key + j);
      biases.push_back(c.has_bias ? t.bias[static_cast<size_t>(p * c.keys + j)] : 0);
    }
    result.add_row(row, keys, biases);
  }
  return result;
}

// Sums of at most 240 products of weights' gradients below 6 * 5 * 5 with roundings that add up like a random walk
// (6 standard deviations), after scores of 16 products below 25.
constexpr double kTolerance = 6 * 16 * 0x1p-24 * 25 * 5;

void check(const Case& c) {
  Tensors t(c);
  const Status status = t.run();
  ASSERT_TRUE(status.ok()) << status;
  const ReferenceGradients expected = expected_gradients(t);
  expect_gradient_near(t.query_grad, expected.query, kTolerance, "query");
  expect_gradient_near(t.key_grad, expected.key, kTolerance, "key");
  expect_gradient_near(t.value_grad, expected.value, kTolerance, "value");
}

TEST(AttentionBackward, MatchesTheDerivativeOfSoftmax) {
  for_each_dispatch_target([] {
    check({});
    check({.queries = 1, .keys = 1});
    check({.batch = 2, .heads = 4, .key_heads = 2, .queries = 5, .keys = 6, .head_dim = 17, .value_dim = 1});
    check({.queries = 100, .keys = 130, .head_dim = 16, .value_dim = 33});
    check({.queries = 120, .keys = 15});
  });
}

TEST(AttentionBackward, FollowsDiagonalLengthsAndBiases) {
  for_each_dispatch_target([] {
    check({.queries = 110, .keys = 140, .causal = true});
    check({.queries = 30, .keys = 10, .causal = true});
    check({.batch = 3, .heads = 2, .queries = 20, .keys = 140, .lengths = {140, 0, 3}});
    check({.batch = 2, .heads = 2, .queries = 40, .keys = 33, .causal = true, .has_bias = true, .lengths = {30, 33}});
  });
}

TEST(AttentionBackward, AcceptsEmptyTensors) {
  check({.heads = 2, .queries = 0, .keys = 5});
  check({.batch = 2, .heads = 2, .queries = 5, .keys = 0});
  check({.batch = 2, .queries = 5, .keys = 0, .has_bias = true});
  check({.batch = 0, .queries = 5, .keys = 5});
}

TEST(AttentionBackward, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.batch = 2, .heads = 6, .key_heads = 3, .queries = 50, .keys = 60, .causal = true};
  Tensors one(c), many(c);
  set_num_threads(1);
  ASSERT_TRUE(one.run().ok());
  set_num_threads(3);
  ASSERT_TRUE(many.run().ok());
  set_num_threads(0);
  EXPECT_EQ(one.query_grad, many.query_grad);
  EXPECT_EQ(one.key_grad, many.key_grad);
  EXPECT_EQ(one.value_grad, many.value_grad);
}

// The rows [first, last) of a [S, heads, width] tensor as [1, heads, S, width].
TensorView part(std::vector<float>& memory, int64_t first, int64_t last, int64_t heads, int64_t width) {
  return strided_view(memory.data() + first * heads * width, DType::kFloat32, {1, heads, last - first, width},
                      {0, width, heads * width, 1});
}

TEST(AttentionBackward, GivesPackedSequencesTheBitsThatTheyHaveAlone) {
  constexpr int64_t kQueries = 50, kKeys = 70, kDim = 8, kHeads = 4, kKeyHeads = 2;
  const std::vector<int64_t> query_starts = {0, 3, 3, 50}, key_starts = {0, 10, 12, 70};
  std::vector<float> query = normal_values(kQueries * kHeads * kDim, 1),
                     key = normal_values(kKeys * kKeyHeads * kDim, 2),
                     value = normal_values(kKeys * kKeyHeads * kDim, 3),
                     grad = normal_values(kQueries * kHeads * kDim, 4);
  std::vector<float> output(query.size()), lse(kHeads * kQueries), grads[3] = {query, key, value},
                                                                   alone[3] = {query, key, value};
  const auto of_queries = [](std::vector<float>& m) { return f32_view(m, {kQueries, kHeads, kDim}); };
  const auto of_keys = [](std::vector<float>& m) { return f32_view(m, {kKeys, kKeyHeads, kDim}); };
  VariableLengthOptions options{.causal = true, .query_starts = query_starts, .key_starts = key_starts};
  options.log_sum_exp = f32_view(lse, {kHeads, kQueries});
  const AttentionForward forward{of_queries(query), of_keys(key), of_keys(value), of_queries(output)};
  ASSERT_TRUE(variable_length_attention(forward.query, forward.key, forward.value, options, forward.output).ok());
  const Status status = variable_length_attention_backward(
      forward, options, {of_queries(grad)}, {of_queries(grads[0]), of_keys(grads[1]), of_keys(grads[2])});
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i + 1 < query_starts.size(); ++i) {
    const int64_t first = query_starts[i], last = query_starts[i + 1], from = key_starts[i], to = key_starts[i + 1];
    AttentionOptions dense;
    dense.causal = true;
    dense.log_sum_exp = strided_view(lse.data() + first, DType::kFloat32, {1, kHeads, last - first}, {0, kQueries, 1});
    ASSERT_TRUE(
        attention_backward({part(query, first, last, kHeads, kDim), part(key, from, to, kKeyHeads, kDim),
                            part(value, from, to, kKeyHeads, kDim), part(output, first, last, kHeads, kDim)},
                           dense, {part(grad, first, last, kHeads, kDim)},
                           {part(alone[0], first, last, kHeads, kDim), part(alone[1], from, to, kKeyHeads, kDim),
                            part(alone[2], from, to, kKeyHeads, kDim)})
            .ok());
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(grads[i], alone[i]);
}

TEST(AttentionBackward, NamesBadArguments) {
  Tensors t({});
  AttentionOptions options = t.options();
  options.log_sum_exp.reset();
  EXPECT_EQ(attention_backward(t.forward(), options, t.gradients(), t.result()).message(),
            "log_sum_exp: expected that of the forward pass, got none");
  AttentionInputGradients result = t.result();
  result.key = t.of_queries(t.query_grad, 8);
  EXPECT_EQ(attention_backward(t.forward(), t.options(), t.gradients(), result).message().substr(0, 9), "key_grad:");
  AttentionGradients gradients = t.gradients();
  gradients.output = contiguous_view(t.output_grad.data(), DType::kFloat16, {1, 1, 7, 8});
  EXPECT_EQ(attention_backward(t.forward(), t.options(), gradients, t.result()).message(),
            "output_grad: expected the dtype of output, float32, got float16[1, 1, 7, 8]");
}

}  // namespace
}  // namespace qx::kernels
