#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "kernels/attention/expect_attention_row.h"
#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_attention_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, head_dim = 16, value_dim = 16;
  std::vector<int64_t> query_starts = {}, key_starts = {};  // empty: blocks of 32
  double density = 0.5;
  bool causal = false;
  std::vector<int64_t> key_lengths = {};
};

// Tensors and random lists of a case, and what block_sparse_attention() made of them.
struct Tensors {
  Case shape;
  std::vector<float> query, key, value, output, lse;
  std::vector<int64_t> idx, num, query_order, key_order;

  explicit Tensors(const Case& c)
      : shape(c),
        query(normal_values(c.batch * c.heads * c.queries * c.head_dim, 1)),
        key(normal_values(c.batch * c.key_heads * c.keys * c.head_dim, 2)),
        value(normal_values(c.batch * c.key_heads * c.keys * c.value_dim, 3)),
        output(static_cast<size_t>(c.batch * c.heads * c.queries * c.value_dim) + 1, 99.0f),
        lse(static_cast<size_t>(c.batch * c.heads * c.queries) + 1, 99.0f) {
    if (shape.query_starts.empty()) shape.query_starts = uniform_block_starts(c.queries, 32);
    if (shape.key_starts.empty()) shape.key_starts = uniform_block_starts(c.keys, 32);
    std::mt19937 generator(4);
    std::bernoulli_distribution is_named(c.density);
    idx.assign(static_cast<size_t>(c.batch * c.heads * query_blocks() * key_blocks()), -1);
    for (int64_t list = 0; list < c.batch * c.heads * query_blocks(); ++list) {
      int64_t count = 0;
      for (int64_t block = 0; block < key_blocks(); ++block) {
        if (is_named(generator)) idx[static_cast<size_t>(list * key_blocks() + count++)] = block;
      }
      num.push_back(count);
    }
  }

  int64_t query_blocks() const { return static_cast<int64_t>(shape.query_starts.size()) - 1; }
  int64_t key_blocks() const { return static_cast<int64_t>(shape.key_starts.size()) - 1; }

  Status run() {
    const Case& c = shape;
    BlockSparseOptions options;
    options.attention.causal = c.causal;
    options.attention.key_lengths = c.key_lengths;
    options.attention.log_sum_exp = f32_view(lse, {c.batch, c.heads, c.queries});
    options.query_starts = c.query_starts;
    options.key_starts = c.key_starts;
    options.select_idx = contiguous_view(idx.data(), DType::kInt64, {c.batch, c.heads, query_blocks(), key_blocks()});
    options.select_num_idx = contiguous_view(num.data(), DType::kInt64, {c.batch, c.heads, query_blocks()});
    options.query_order = query_order;
    options.key_order = key_order;
    return block_sparse_attention(f32_view(query, {c.batch, c.heads, c.queries, c.head_dim}),
                                  f32_view(key, {c.batch, c.key_heads, c.keys, c.head_dim}),
                                  f32_view(value, {c.batch, c.key_heads, c.keys, c.value_dim}), options,
                                  f32_view(output, {c.batch, c.heads, c.queries, c.value_dim}));
  }
};

int64_t row_at(const std::vector<int64_t>& order, int64_t position) {
  return order.empty() ? position : order[static_cast<size_t>(position)];
}

std::vector<double> gather(const std::vector<float>& memory, int64_t first_row, const std::vector<int64_t>& rows,
                           int64_t width) {
  std::vector<double> result;
  for (const int64_t row : rows) {
    const auto begin = memory.begin() + (first_row + row) * width;
    result.insert(result.end(), begin, begin + width);
  }
  return result;
}

void expect_position(const Tensors& t, int64_t batch, int64_t head, int64_t position) {
  const Case& c = t.shape;
  const auto& starts = c.query_starts;
  const auto block = std::upper_bound(starts.begin(), starts.end(), position) - starts.begin() - 1;
  const int64_t list = (batch * c.heads + head) * t.query_blocks() + block;
  const auto first = t.idx.begin() + list * t.key_blocks();
  const std::vector<int64_t> named(first, first + t.num[static_cast<size_t>(list)]);
  int64_t end = c.key_lengths.empty() ? c.keys : c.key_lengths[static_cast<size_t>(batch)];
  if (c.causal) end = std::min(end, position + 1 + c.keys - c.queries);
  std::vector<int64_t> rows = block_sparse_visible_keys(named, c.key_starts, end);
  for (int64_t& row : rows) row = row_at(t.key_order, row);
  const int64_t index = (batch * c.heads + head) * c.queries + row_at(t.query_order, position);
  const int64_t first_key = (batch * c.key_heads + head / (c.heads / c.key_heads)) * c.keys;
  const AttentionRowProblem problem{
      .query = gather(t.query, index, {0}, c.head_dim),
      .keys = gather(t.key, first_key, rows, c.head_dim),
      .values = gather(t.value, first_key, rows, c.value_dim),
      .scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),
  };
  const float* output = t.output.data() + index * c.value_dim;
  expect_attention_row(
      problem, {batch, head, position, {output, static_cast<size_t>(c.value_dim)}, t.lse[static_cast<size_t>(index)]});
}

void expect_all(const Tensors& t) {
  for (int64_t batch = 0; batch < t.shape.batch; ++batch) {
    for (int64_t head = 0; head < t.shape.heads; ++head) {
      for (int64_t position = 0; position < t.shape.queries; ++position) expect_position(t, batch, head, position);
    }
  }
  EXPECT_EQ(t.output.back(), 99.0f);
  EXPECT_EQ(t.lse.back(), 99.0f);
}

void check(const Case& c) {
  Tensors tensors(c);
  const Status status = tensors.run();
  ASSERT_TRUE(status.ok()) << status;
  expect_all(tensors);
}

TEST(BlockSparseAttention, MatchesTheReferenceAtRaggedLengthsAndBlocks) {
  for_each_dispatch_target([] {
    for (const int64_t block : {1, 16, 24, 33, 128}) {
      for (const int64_t queries : {1, 31, 97}) {
        for (const int64_t keys : {1, 16, 130, 257}) {
          check({.queries = queries,
                 .keys = keys,
                 .query_starts = uniform_block_starts(queries, block),
                 .key_starts = uniform_block_starts(keys, block)});
        }
      }
    }
  });
}

TEST(BlockSparseAttention, MatchesTheReferenceForBlocksOfUnequalLength) {
  for_each_dispatch_target([] {
    check({.heads = 2,
           .queries = 200,
           .keys = 330,
           .query_starts = {0, 150, 151, 200},
           .key_starts = {0, 3, 35, 300, 330}});
    check({.queries = 300, .keys = 40, .query_starts = {0, 300}, .key_starts = {0, 40}, .density = 1});
  });
}

TEST(BlockSparseAttention, MatchesTheReferenceAtAnyHeadSize) {
  for_each_dispatch_target([] {
    for (const int64_t head_dim : {1, 17, 40, 72, 80, 255}) {
      check({.queries = 40, .keys = 70, .head_dim = head_dim, .value_dim = 257 - head_dim});
    }
  });
}

TEST(BlockSparseAttention, SharesKeyHeadsAndKeepsBatchItemsApart) {
  for_each_dispatch_target(
      [] { check({.batch = 2, .heads = 6, .key_heads = 2, .queries = 70, .keys = 100, .density = 0.4}); });
}

TEST(BlockSparseAttention, AlignsTheCausalDiagonalToTheLastKey) {
  for_each_dispatch_target([] {
    for (const int64_t queries : {5, 100, 150}) {
      for (const int64_t keys : {5, 100, 170})
        check({.queries = queries, .keys = keys, .density = 0.7, .causal = true});
    }
  });
}

TEST(BlockSparseAttention, FollowsOrders) {
  for_each_dispatch_target([] {
    Tensors t({.batch = 2, .heads = 2, .key_heads = 1, .queries = 75, .keys = 110});
    std::mt19937 generator(5);
    t.query_order.resize(75);
    t.key_order.resize(110);
    for (auto* order : {&t.query_order, &t.key_order}) {
      std::iota(order->begin(), order->end(), 0);
      std::shuffle(order->begin(), order->end(), generator);
    }
    const Status status = t.run();
    ASSERT_TRUE(status.ok()) << status;
    expect_all(t);
  });
}

TEST(BlockSparseAttention, ReadsNothingButTheNamedKeys) {
  for_each_dispatch_target([] {
    Tensors t({.batch = 2, .queries = 50, .keys = 100, .key_lengths = {100, 45}});
    const int64_t query_blocks = t.query_blocks(), key_blocks = t.key_blocks();
    for (int64_t list = 0; list < 2 * query_blocks; ++list) {
      t.num[static_cast<size_t>(list)] = 2;
      t.idx[static_cast<size_t>(list * key_blocks)] = 1;
      t.idx[static_cast<size_t>(list * key_blocks + 1)] = 3;
    }
    for (int64_t batch = 0; batch < 2; ++batch) {
      for (int64_t row = 0; row < 100; ++row) {
        const bool named = row / 32 == 1 || row / 32 == 3;
        if (named && row < t.shape.key_lengths[static_cast<size_t>(batch)]) continue;
        std::fill_n(t.key.begin() + (batch * 100 + row) * 16, 16, kNaN);
        std::fill_n(t.value.begin() + (batch * 100 + row) * 16, 16, kInfinity);
      }
    }
    ASSERT_TRUE(t.run().ok());
    expect_all(t);
  });
}

TEST(BlockSparseAttention, GivesZerosForEmptyLists) {
  for_each_dispatch_target([] {
    Tensors t({.heads = 2, .queries = 40, .keys = 50, .density = 0});
    ASSERT_TRUE(t.run().ok());
    for (size_t i = 0; i + 1 < t.output.size(); ++i) ASSERT_EQ(t.output[i], 0);
    for (size_t i = 0; i + 1 < t.lse.size(); ++i) ASSERT_EQ(t.lse[i], -kInfinity);
  });
}

TEST(BlockSparseAttention, GivesTheBitsOfDenseAttentionWithFullLists) {
  for_each_dispatch_target([] {
    Tensors t({.heads = 2, .queries = 192, .keys = 300, .query_starts = uniform_block_starts(192, 96), .density = 1});
    ASSERT_TRUE(t.run().ok());
    std::vector<float> dense(t.output);
    ASSERT_TRUE(attention(f32_view(t.query, {1, 2, 192, 16}), f32_view(t.key, {1, 1, 300, 16}),
                          f32_view(t.value, {1, 1, 300, 16}), {}, f32_view(dense, {1, 2, 192, 16}))
                    .ok());
    EXPECT_EQ(std::memcmp(dense.data(), t.output.data(), dense.size() * sizeof(float)), 0);
  });
}

TEST(BlockSparseAttention, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.batch = 2, .heads = 4, .key_heads = 2, .queries = 210, .keys = 300, .head_dim = 24, .causal = true};
  Tensors one(c), many(c);
  set_num_threads(1);
  ASSERT_TRUE(one.run().ok());
  set_num_threads(3);
  ASSERT_TRUE(many.run().ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.output.data(), many.output.data(), one.output.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(one.lse.data(), many.lse.data(), one.lse.size() * sizeof(float)), 0);
}

TEST(BlockSparseAttention, AcceptsEmptyTensors) {
  check({.queries = 0, .keys = 40});
  check({.queries = 40, .keys = 0});
  check({.batch = 0, .queries = 5, .keys = 5});
}

class BlockSparseBadInput : public testing::Test {
 protected:
  Tensors tensors_{{.heads = 2, .queries = 40, .keys = 100, .density = 1}};
  std::string message() { return tensors_.run().message(); }
};

TEST_F(BlockSparseBadInput, NamesAListThatIsNotRising) {
  EXPECT_EQ(message(), "");
  tensors_.idx[5] = 0;
  EXPECT_EQ(message(), "select_idx[0, 0, 1, 1]: expected rising indices without repetition, got 0 after 0");
  tensors_.idx[5] = 3;
  EXPECT_EQ(message(), "select_idx[0, 0, 1, 2]: expected rising indices without repetition, got 2 after 3");
}

TEST_F(BlockSparseBadInput, NamesAnIndexOutOfRange) {
  tensors_.idx[15] = 4;
  EXPECT_EQ(message(), "select_idx[0, 1, 1, 3]: expected one of the 4 key blocks, got 4");
  tensors_.idx[15] = -1;
  EXPECT_EQ(message(), "select_idx[0, 1, 1, 3]: expected one of the 4 key blocks, got -1");
  tensors_.num[3] = 3;
  EXPECT_EQ(message(), "") << "entries after the number of a list are not read";
  tensors_.num[3] = 5;
  EXPECT_EQ(message(), "select_num_idx[0, 1, 1]: expected 0 to the 4 entries of a list, got 5");
  tensors_.num[3] = -1;
  EXPECT_EQ(message(), "select_num_idx[0, 1, 1]: expected 0 to the 4 entries of a list, got -1");
}

TEST_F(BlockSparseBadInput, NamesStartsAndOrders) {
  tensors_.shape.key_starts = {0, 32, 32, 64, 100};
  EXPECT_EQ(message(), "key_starts: expected rising numbers from 0 to the length 100, got 5 numbers from 0 to 100");
  tensors_.shape.key_starts = {0, 32, 64, 96, 99};
  EXPECT_EQ(message(), "key_starts: expected rising numbers from 0 to the length 100, got 5 numbers from 0 to 99");
  tensors_.shape.key_starts = {0, 32, 64, 96, 100};
  tensors_.query_order.assign(40, 7);
  EXPECT_EQ(message(),
            "query_order: expected a permutation of the 40 rows, got 40 indices with 7 out of range or repeated");
  std::iota(tensors_.query_order.begin(), tensors_.query_order.end(), 0);
  tensors_.shape.causal = true;
  EXPECT_EQ(message(), "causal: expected false together with query_order or key_order, got true");
}

TEST_F(BlockSparseBadInput, NamesListsOfAnotherShape) {
  tensors_.shape.query_starts = {0, 40};
  tensors_.shape.query_starts.push_back(41);
  EXPECT_EQ(message(), "query_starts: expected rising numbers from 0 to the length 40, got 3 numbers from 0 to 41");
  BlockSparseOptions options;
  options.query_starts = options.key_starts = tensors_.shape.query_starts = {0, 40};
  const TensorView q = f32_view(tensors_.query, {1, 2, 40, 16});
  const TensorView k = f32_view(tensors_.key, {1, 1, 40, 16});
  EXPECT_EQ(block_sparse_attention(q, k, f32_view(tensors_.value, {1, 1, 40, 16}), options,
                                   f32_view(tensors_.output, {1, 2, 40, 16}))
                .message(),
            "select_idx: expected int64[1, 2, 1, any] (batch, heads, query blocks), got float32[]");
}

}  // namespace
}  // namespace qx::kernels
