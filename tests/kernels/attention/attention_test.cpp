#include "quincunx/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/attention/expect_attention_row.h"
#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, head_dim = 16, value_dim = 16;
  bool causal = false;
  std::vector<int64_t> key_lengths = {};
  float scale = 0;  // 0: the default
};

// Contiguous tensors of a case and what attention() made of them.
struct Tensors {
  Case shape;
  std::vector<float> query, key, value, output, lse;

  explicit Tensors(const Case& c, uint32_t seed = 1)
      : shape(c),
        query(normal_values(c.batch * c.heads * c.queries * c.head_dim, seed)),
        key(normal_values(c.batch * c.key_heads * c.keys * c.head_dim, seed + 1)),
        value(normal_values(c.batch * c.key_heads * c.keys * c.value_dim, seed + 2)),
        output(static_cast<size_t>(c.batch * c.heads * c.queries * c.value_dim) + 1, 99.0f),
        lse(static_cast<size_t>(c.batch * c.heads * c.queries) + 1, 99.0f) {}

  TensorView query_view() { return f32_view(query, {shape.batch, shape.heads, shape.queries, shape.head_dim}); }
  TensorView key_view() { return f32_view(key, {shape.batch, shape.key_heads, shape.keys, shape.head_dim}); }
  TensorView value_view() { return f32_view(value, {shape.batch, shape.key_heads, shape.keys, shape.value_dim}); }
  TensorView output_view() { return f32_view(output, {shape.batch, shape.heads, shape.queries, shape.value_dim}); }
  AttentionOptions options() {
    AttentionOptions result;
    if (shape.scale != 0) result.scale = shape.scale;
    result.causal = shape.causal;
    result.key_lengths = shape.key_lengths;
    result.log_sum_exp = f32_view(lse, {shape.batch, shape.heads, shape.queries});
    return result;
  }
  Status run() { return attention(query_view(), key_view(), value_view(), options(), output_view()); }
};

void expect_row(const Tensors& t, int64_t batch, int64_t head, int64_t row) {
  const Case& c = t.shape;
  const int64_t key_head = batch * c.key_heads + head / (c.heads / c.key_heads);
  int64_t visible = c.key_lengths.empty() ? c.keys : c.key_lengths[static_cast<size_t>(batch)];
  if (c.causal) visible = std::min(visible, std::max<int64_t>(0, row + 1 + c.keys - c.queries));
  const int64_t index = (batch * c.heads + head) * c.queries + row;
  const AttentionRowProblem problem{
      .query = slice(t.query, index * c.head_dim, c.head_dim),
      .keys = slice(t.key, key_head * c.keys * c.head_dim, visible * c.head_dim),
      .values = slice(t.value, key_head * c.keys * c.value_dim, visible * c.value_dim),
      .scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_dim)),
  };
  const float* output = t.output.data() + index * c.value_dim;
  expect_attention_row(
      problem, {batch, head, row, {output, static_cast<size_t>(c.value_dim)}, t.lse[static_cast<size_t>(index)]});
}

void expect_all_rows(const Tensors& t) {
  for (int64_t batch = 0; batch < t.shape.batch; ++batch) {
    for (int64_t head = 0; head < t.shape.heads; ++head) {
      for (int64_t row = 0; row < t.shape.queries; ++row) expect_row(t, batch, head, row);
    }
  }
  EXPECT_EQ(t.output.back(), 99.0f);
  EXPECT_EQ(t.lse.back(), 99.0f);
}

void check(const Case& c) {
  Tensors tensors(c);
  const Status status = tensors.run();
  ASSERT_TRUE(status.ok()) << status;
  expect_all_rows(tensors);
}

TEST(Attention, MatchesTheReferenceAtRaggedLengths) {
  for_each_dispatch_target([] {
    for (const int64_t queries : {1, 5, 6, 7, 95, 96, 97, 200}) {
      for (const int64_t keys : {1, 15, 16, 17, 127, 128, 129, 260}) check({.queries = queries, .keys = keys});
    }
  });
}

TEST(Attention, MatchesTheReferenceAtAnyHeadSize) {
  for_each_dispatch_target([] {
    for (const int64_t head_dim : {1, 2, 7, 15, 16, 17, 40, 64, 80, 128, 255, 256}) {
      check({.queries = 13, .keys = 37, .head_dim = head_dim, .value_dim = 257 - head_dim});
    }
  });
}

TEST(Attention, AlignsTheCausalDiagonalToTheLastKey) {
  for_each_dispatch_target([] {
    for (const int64_t queries : {1, 8, 100, 200}) {
      for (const int64_t keys : {1, 8, 100, 150, 300}) {
        check({.queries = queries, .keys = keys, .head_dim = 8, .value_dim = 8, .causal = true});
      }
    }
  });
}

TEST(Attention, SharesKeyHeadsAmongGroupsOfQueryHeads) {
  for_each_dispatch_target([] {
    check({.batch = 2, .heads = 6, .key_heads = 2, .queries = 20, .keys = 33, .causal = true});
    check({.batch = 2, .heads = 4, .key_heads = 1, .queries = 7, .keys = 9, .scale = -0.3f});
  });
}

TEST(Attention, IgnoresPaddingWhateverItsMemoryHolds) {
  for_each_dispatch_target([] {
    for (const bool causal : {false, true}) {
      Tensors t({.batch = 4,
                 .heads = 2,
                 .key_heads = 1,
                 .queries = 140,
                 .keys = 140,
                 .causal = causal,
                 .key_lengths = {140, 0, 1, 70}});
      for (int64_t batch = 0; batch < 4; ++batch) {
        for (int64_t j = t.shape.key_lengths[static_cast<size_t>(batch)]; j < 140; ++j) {
          for (int64_t i = 0; i < 16; ++i) {
            t.key[static_cast<size_t>((batch * 140 + j) * 16 + i)] = kNaN;
            t.value[static_cast<size_t>((batch * 140 + j) * 16 + i)] = kInfinity;
          }
        }
      }
      ASSERT_TRUE(t.run().ok());
      expect_all_rows(t);
    }
  });
}

TEST(Attention, FollowsStrides) {
  // [B, S, H, D] projections seen as [B, H, S, D], with every second column in memory.
  constexpr int64_t kBatch = 2, kHeads = 3, kLength = 21, kDim = 10;
  for_each_dispatch_target([] {
    const Case c{.batch = kBatch,
                 .heads = kHeads,
                 .key_heads = kHeads,
                 .queries = kLength,
                 .keys = kLength,
                 .head_dim = kDim,
                 .value_dim = kDim};
    Tensors expected(c);
    ASSERT_TRUE(expected.run().ok());
    const std::vector<int64_t> shape = {kBatch, kHeads, kLength, kDim};
    const std::vector<int64_t> strides = {kLength * kHeads * kDim * 2, kDim * 2, kHeads * kDim * 2, 2};
    std::vector<std::vector<float>> memory(4, std::vector<float>(expected.query.size() * 2, 99));
    std::vector<TensorView> views;
    for (auto& m : memory) views.push_back(strided_view(m.data(), DType::kFloat32, shape, strides));
    const auto index = [&](int64_t b, int64_t h, int64_t s, int64_t i) {
      return static_cast<size_t>(b * strides[0] + h * strides[1] + s * strides[2] + i * strides[3]);
    };
    const std::vector<float>* sources[] = {&expected.query, &expected.key, &expected.value};
    const auto for_each_element = [&](const auto& body) {
      size_t flat = 0;
      for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t h = 0; h < kHeads; ++h) {
          for (int64_t s = 0; s < kLength; ++s) {
            for (int64_t i = 0; i < kDim; ++i) body(flat++, index(b, h, s, i));
          }
        }
      }
    };
    for (size_t k = 0; k < 3; ++k) {
      for_each_element([&](size_t flat, size_t strided) { memory[k][strided] = (*sources[k])[flat]; });
    }
    ASSERT_TRUE(attention(views[0], views[1], views[2], {}, views[3]).ok());
    for_each_element([&](size_t flat, size_t strided) {
      ASSERT_EQ(memory[3][strided], expected.output[flat]);
      ASSERT_EQ(memory[3][strided + 1], 99) << "wrote between the columns";
    });
  });
}

TEST(Attention, IsSafeForLargeScoresAndInfinities) {
  for_each_dispatch_target([] {
    Tensors large({.queries = 9, .keys = 150, .scale = 40.0f});
    ASSERT_TRUE(large.run().ok());
    expect_all_rows(large);

    Tensors t({.queries = 3, .keys = 20, .head_dim = 2, .value_dim = 3});
    std::fill(t.query.begin(), t.query.end(), 1.0f);
    for (size_t i = 0; i < t.key.size(); i += 2) t.key[i] = -kInfinity;
    ASSERT_TRUE(t.run().ok());
    for (size_t i = 0; i < 9; ++i) EXPECT_EQ(t.output[i], 0) << "only scores of -inf";
    EXPECT_EQ(t.lse[0], -kInfinity);

    t.key[10] = kNaN;
    ASSERT_TRUE(t.run().ok());
    for (size_t i = 0; i < 9; ++i) EXPECT_TRUE(std::isnan(t.output[i]));
  });
}

TEST(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.batch = 2,
               .heads = 4,
               .key_heads = 2,
               .queries = 210,
               .keys = 300,
               .head_dim = 24,
               .value_dim = 40,
               .causal = true,
               .key_lengths = {300, 200}};
  Tensors one(c), many(c);
  set_num_threads(1);
  ASSERT_TRUE(one.run().ok());
  set_num_threads(3);
  ASSERT_TRUE(many.run().ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.output.data(), many.output.data(), one.output.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(one.lse.data(), many.lse.data(), one.lse.size() * sizeof(float)), 0);
}

TEST(Attention, PacksHeadsInGroupsWhenTheyAreMany) {
  // 40 heads of 1024 keys, 256 + 256 wide, are 80 MiB packed: three groups.
  Tensors t({.heads = 40, .key_heads = 40, .queries = 1, .keys = 1024, .head_dim = 256, .value_dim = 256});
  ASSERT_TRUE(t.run().ok());
  for (const int64_t head : {0, 15, 16, 31, 32, 39}) expect_row(t, 0, head, 0);
}

TEST(Attention, AcceptsEmptyTensors) {
  check({.queries = 0, .keys = 5});
  check({.queries = 5, .keys = 0});
  check({.queries = 5, .keys = 0, .causal = true});
  check({.batch = 0, .queries = 5, .keys = 5});
  check({.heads = 0, .key_heads = 1, .queries = 5, .keys = 5});
}

}  // namespace
}  // namespace qx::kernels
