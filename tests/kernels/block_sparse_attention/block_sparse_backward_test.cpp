#include "quincunx/kernels/block_sparse_attention/block_sparse_backward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "kernels/attention/gradient_reference.h"
#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_attention_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

struct Case {
  int64_t heads = 2, key_heads = 1, queries = 70, keys = 150, head_dim = 16, value_dim = 24;
  std::vector<int64_t> query_starts = {0, 10, 70}, key_starts = {0, 32, 40, 150};
  bool causal = false;
  bool is_shuffled = false;
};

// One batch item; every list names the first and the last key block, those of even query blocks the others too.
struct Tensors {
  Case shape;
  std::vector<float> query, key, value, output, lse, output_grad, lse_grad, query_grad, key_grad, value_grad;
  std::vector<int64_t> idx, num, query_order, key_order;

  explicit Tensors(const Case& c)
      : shape(c),
        query(normal_values(c.heads * c.queries * c.head_dim, 1)),
        key(normal_values(c.key_heads * c.keys * c.head_dim, 2)),
        value(normal_values(c.key_heads * c.keys * c.value_dim, 3)),
        output(static_cast<size_t>(c.heads * c.queries * c.value_dim)),
        lse(static_cast<size_t>(c.heads * c.queries)),
        output_grad(normal_values(c.heads * c.queries * c.value_dim, 4)),
        lse_grad(normal_values(c.heads * c.queries, 5)),
        query_grad(query.size(), 99.0f),
        key_grad(key.size(), 99.0f),
        value_grad(value.size(), 99.0f) {
    const int64_t blocks = key_blocks();
    for (int64_t list = 0; list < c.heads * query_blocks(); ++list) {
      std::vector<int64_t> named(static_cast<size_t>(blocks));
      std::iota(named.begin(), named.end(), 0);
      if (list % 2 == 1 && blocks > 2) named.erase(named.begin() + 1, named.end() - 1);
      num.push_back(static_cast<int64_t>(named.size()));
      named.resize(static_cast<size_t>(blocks), -1);
      idx.insert(idx.end(), named.begin(), named.end());
    }
    if (!c.is_shuffled) return;
    std::mt19937 generator(6);
    query_order.resize(static_cast<size_t>(c.queries));
    key_order.resize(static_cast<size_t>(c.keys));
    for (auto* order : {&query_order, &key_order}) {
      std::iota(order->begin(), order->end(), 0);
      std::shuffle(order->begin(), order->end(), generator);
    }
  }

  int64_t query_blocks() const { return static_cast<int64_t>(shape.query_starts.size()) - 1; }
  int64_t key_blocks() const { return static_cast<int64_t>(shape.key_starts.size()) - 1; }
  TensorView of_queries(std::vector<float>& values, int64_t width) {
    return f32_view(values, {1, shape.heads, shape.queries, width});
  }
  TensorView of_keys(std::vector<float>& values, int64_t width) {
    return f32_view(values, {1, shape.key_heads, shape.keys, width});
  }

  BlockSparseOptions options() {
    BlockSparseOptions result;
    result.attention.causal = shape.causal;
    result.attention.log_sum_exp = f32_view(lse, {1, shape.heads, shape.queries});
    result.query_starts = shape.query_starts;
    result.key_starts = shape.key_starts;
    result.select_idx = contiguous_view(idx.data(), DType::kInt64, {1, shape.heads, query_blocks(), key_blocks()});
    result.select_num_idx = contiguous_view(num.data(), DType::kInt64, {1, shape.heads, query_blocks()});
    result.query_order = query_order;
    result.key_order = key_order;
    return result;
  }

  Status run() {
    const Case& c = shape;
    const BlockSparseForward forward{of_queries(query, c.head_dim), of_keys(key, c.head_dim),
                                     of_keys(value, c.value_dim), of_queries(output, c.value_dim)};
    QX_RETURN_IF_ERROR(block_sparse_attention(forward.query, forward.key, forward.value, options(), forward.output));
    return backward(forward, of_keys(key_grad, c.head_dim));
  }
  Status backward(const BlockSparseForward& forward, const TensorView& key_grad_view) {
    const Case& c = shape;
    return block_sparse_attention_backward(
        forward, options(), {of_queries(output_grad, c.value_dim), f32_view(lse_grad, {1, c.heads, c.queries})},
        {of_queries(query_grad, c.head_dim), key_grad_view, of_keys(value_grad, c.value_dim)});
  }
};

ReferenceGradients expected_gradients(const Tensors& t) {
  const Case& c = t.shape;
  ReferenceGradients result({t.query, t.key, t.value, t.output_grad, t.lse_grad, c.head_dim, c.value_dim});
  for (int64_t position = 0; position < c.heads * c.queries; ++position) {
    const int64_t head = position / c.queries, p = position % c.queries;
    const auto block = std::upper_bound(c.query_starts.begin(), c.query_starts.end(), p) - c.query_starts.begin() - 1;
    const int64_t list = head * t.query_blocks() + block;
    const auto first = t.idx.begin() + list * t.key_blocks();
    const std::vector<int64_t> named(first, first + t.num[static_cast<size_t>(list)]);
    const int64_t end = c.causal ? p + 1 + c.keys - c.queries : c.keys;
    std::vector<int64_t> rows = block_sparse_visible_keys(named, c.key_starts, end);
    const int64_t row = head * c.queries + (t.query_order.empty() ? p : t.query_order[static_cast<size_t>(p)]);
    const int64_t key_head = head / (c.heads / c.key_heads);
    for (int64_t& j : rows) {
      j = key_head * c.keys + (t.key_order.empty() ? j : t.key_order[static_cast<size_t>(j)]);
    }
    result.add_row(row, rows);
  }
  return result;
}

// Weights carry the rounding of scores below 20, 6 sqrt(D) 2^-24 of them; a gradient is a product of a weight, of two
// sums of at most 24 products below 16 each, and of an element below 5, summed over rows with weights of one in all.
constexpr double kTolerance = 6.0 * 5 * 20 * 0x1p-24 * 2 * 24 * 5;

void check(const Case& c) {
  Tensors t(c);
  const Status status = t.run();
  ASSERT_TRUE(status.ok()) << status;
  const ReferenceGradients expected = expected_gradients(t);
  expect_gradient_near(t.query_grad, expected.query, kTolerance, "query");
  expect_gradient_near(t.key_grad, expected.key, kTolerance, "key");
  expect_gradient_near(t.value_grad, expected.value, kTolerance, "value");
}

TEST(BlockSparseBackward, MatchesTheDerivativeOfSoftmax) {
  for_each_dispatch_target([] {
    check({});
    check({.heads = 4, .key_heads = 2, .head_dim = 17, .value_dim = 1});
    check({.queries = 210, .keys = 33, .query_starts = {0, 200, 210}, .key_starts = {0, 1, 2, 33}});
    check({.queries = 1, .keys = 1, .query_starts = {0, 1}, .key_starts = {0, 1}});
  });
}

TEST(BlockSparseBackward, FollowsTheCausalDiagonalAndOrders) {
  for_each_dispatch_target([] {
    check({.causal = true});
    check({.queries = 150, .keys = 70, .query_starts = {0, 100, 150}, .key_starts = {0, 20, 70}, .causal = true});
    check({.is_shuffled = true});
  });
}

TEST(BlockSparseBackward, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.heads = 6, .key_heads = 3};
  Tensors one(c), many(c);
  set_num_threads(1);
  ASSERT_TRUE(one.run().ok());
  set_num_threads(3);
  ASSERT_TRUE(many.run().ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.key_grad.data(), many.key_grad.data(), one.key_grad.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(one.query_grad.data(), many.query_grad.data(), one.query_grad.size() * sizeof(float)), 0);
}

TEST(BlockSparseBackward, NamesGradientsOfAnotherShape) {
  Tensors t({});
  const Case& c = t.shape;
  const BlockSparseForward forward{t.of_queries(t.query, c.head_dim), t.of_keys(t.key, c.head_dim),
                                   t.of_keys(t.value, c.value_dim), t.of_queries(t.output, c.value_dim)};
  const std::string message = t.backward(forward, t.of_queries(t.query, c.head_dim)).message();
  EXPECT_EQ(message.substr(0, 9), "key_grad:") << message;
}

}  // namespace
}  // namespace qx::kernels
