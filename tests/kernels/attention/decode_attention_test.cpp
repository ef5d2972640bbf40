#include "quincunx/kernels/attention/decode_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention/expect_attention_row.h"
#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t batch = 1, heads = 1, key_heads = 1, tokens = 1, capacity = 1, head_dim = 16, value_dim = 16;
  std::vector<int64_t> lengths = {};
  DType dtype = DType::kFloat32;        // of the cache
  DType query_dtype = DType::kFloat32;  // and output
  float scale = 0;                      // 0: the default

  int64_t length(int64_t item) const { return lengths.empty() ? capacity : lengths[static_cast<size_t>(item)]; }
};

// Values that are exact in `dtype`, and their memory in it.
struct Stored {
  std::vector<float> values;
  std::vector<uint16_t> half;
  DType dtype;

  Stored(std::vector<float> v, DType type) : values(std::move(v)), dtype(type) {
    if (dtype == DType::kFloat32) return;
    half = narrowed(values, dtype);
    values = widened(half, dtype);
  }
  void* data() { return dtype == DType::kFloat32 ? static_cast<void*>(values.data()) : half.data(); }
  TensorView view(const std::vector<int64_t>& shape) { return contiguous_view(data(), dtype, shape); }
  void load_half() {
    if (dtype != DType::kFloat32) values = widened(half, dtype);
  }
};

struct Tensors {
  Case shape;
  Stored query, key, value, output;
  std::vector<float> lse;

  explicit Tensors(const Case& c)
      : shape(c),
        query(normal_values(c.batch * c.heads * c.tokens * c.head_dim, 1), c.query_dtype),
        key(normal_values(c.batch * c.key_heads * c.capacity * c.head_dim, 2), c.dtype),
        value(normal_values(c.batch * c.key_heads * c.capacity * c.value_dim, 3), c.dtype),
        output(std::vector<float>(static_cast<size_t>(c.batch * c.heads * c.tokens * c.value_dim), 99), c.query_dtype),
        lse(static_cast<size_t>(c.batch * c.heads * c.tokens), 99.0f) {}

  TensorView query_view() { return query.view({shape.batch, shape.heads, shape.tokens, shape.head_dim}); }
  TensorView key_view() { return key.view({shape.batch, shape.key_heads, shape.capacity, shape.head_dim}); }
  TensorView value_view() { return value.view({shape.batch, shape.key_heads, shape.capacity, shape.value_dim}); }
  TensorView output_view() { return output.view({shape.batch, shape.heads, shape.tokens, shape.value_dim}); }
  DecodeAttentionOptions options() {
    DecodeAttentionOptions result;
    if (shape.scale != 0) result.scale = shape.scale;
    result.key_lengths = shape.lengths;
    result.log_sum_exp = f32_view(lse, {shape.batch, shape.heads, shape.tokens});
    return result;
  }
  Status run() {
    const Status status = decode_attention(query_view(), key_view(), value_view(), options(), output_view());
    output.load_half();
    return status;
  }

  // The same cache cut into pages of `size` tokens that stand in reverse order, with garbage in between.
  Status run_paged(int64_t size, DType table_type = DType::kInt32) {
    const Case& c = shape;
    const int64_t pages_an_item = (c.capacity + size - 1) / size, pages = c.batch * pages_an_item + 1;
    Stored keys(std::vector<float>(static_cast<size_t>(pages * c.key_heads * size * c.head_dim), kNaN), c.dtype);
    Stored values(std::vector<float>(static_cast<size_t>(pages * c.key_heads * size * c.value_dim), kNaN), c.dtype);
    std::vector<int32_t> narrow;
    std::vector<int64_t> wide;
    for (int64_t item = 0; item < c.batch; ++item) {
      for (int64_t i = 0; i < pages_an_item; ++i) {
        // Entries after the last page are not read.
        const int64_t page = i * size < c.length(item) ? pages - 1 - (item * pages_an_item + i) : 1 << 30;
        narrow.push_back(static_cast<int32_t>(page));
        wide.push_back(page);
      }
      for (int64_t j = 0; j < c.length(item); ++j) {
        const int64_t page = wide[static_cast<size_t>(item * pages_an_item + j / size)];
        for (int64_t head = 0; head < c.key_heads; ++head) {
          const int64_t from = (item * c.key_heads + head) * c.capacity + j;
          const int64_t to = (page * c.key_heads + head) * size + j % size;
          copy_row(key, from, keys, to, c.head_dim);
          copy_row(value, from, values, to, c.value_dim);
        }
      }
    }
    std::vector<int64_t> lengths;
    for (int64_t item = 0; item < c.batch; ++item) lengths.push_back(c.length(item));
    DecodeAttentionOptions o = options();
    o.key_lengths = lengths;
    const bool is_narrow = table_type == DType::kInt32;
    const Status status = paged_decode_attention(
        query_view(),
        {keys.view({pages, c.key_heads, size, c.head_dim}), values.view({pages, c.key_heads, size, c.value_dim}),
         contiguous_view(is_narrow ? static_cast<void*>(narrow.data()) : wide.data(), table_type,
                         {c.batch, pages_an_item})},
        o, output_view());
    output.load_half();
    return status;
  }

  static void copy_row(Stored& from, int64_t from_row, Stored& to, int64_t to_row, int64_t width) {
    const auto bytes = static_cast<size_t>(width * dtype_size_bytes(from.dtype));
    std::memcpy(static_cast<char*>(to.data()) + static_cast<size_t>(to_row) * bytes,
                static_cast<char*>(from.data()) + static_cast<size_t>(from_row) * bytes, bytes);
  }
};

double rounding_of(DType dtype) { return dtype == DType::kFloat32 ? 0 : dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11; }

void expect_row(const Tensors& t, int64_t item, int64_t head, int64_t token) {
  const Case& c = t.shape;
  const int64_t key_head = item * c.key_heads + head / (c.heads / c.key_heads);
  const int64_t visible = std::clamp<int64_t>(c.length(item) - c.tokens + 1 + token, 0, c.length(item));
  const int64_t index = (item * c.heads + head) * c.tokens + token;
  const AttentionRowProblem problem{
      .query = slice(t.query.values, index * c.head_dim, c.head_dim),
      .keys = slice(t.key.values, key_head * c.capacity * c.head_dim, visible * c.head_dim),
      .values = slice(t.value.values, key_head * c.capacity * c.value_dim, visible * c.value_dim),
      .scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_dim)),
  };
  const float* output = t.output.values.data() + index * c.value_dim;
  // Joining runs adds a rounding and a factor each. A half output is rounded once.
  const double runs = static_cast<double>(visible) / kDecodeSplitKeys + 1;
  expect_attention_row(
      problem, {item, head, token, {output, static_cast<size_t>(c.value_dim)}, t.lse[static_cast<size_t>(index)]},
      {.of_weights = 3 * runs, .of_output = rounding_of(c.query_dtype), .of_small_outputs = 0x1p-25});
}

void expect_all_rows(const Tensors& t) {
  for (int64_t item = 0; item < t.shape.batch; ++item) {
    for (int64_t head = 0; head < t.shape.heads; ++head) {
      for (int64_t token = 0; token < t.shape.tokens; ++token) expect_row(t, item, head, token);
    }
  }
}

void check(const Case& c) {
  Tensors t(c);
  const Status status = t.run();
  ASSERT_TRUE(status.ok()) << status;
  expect_all_rows(t);
}

TEST(DecodeAttention, MatchesTheReferenceAtAnyLength) {
  for_each_dispatch_target([] {
    for (const int64_t keys : {1, 3, 4, 5, 127, 128, 129, 255, 256, 257, 700}) {
      check({.capacity = keys});
      check({.heads = 6, .key_heads = 2, .tokens = 3, .capacity = keys, .head_dim = 24});
    }
  });
}

TEST(DecodeAttention, MatchesTheReferenceAtAnyHeadSize) {
  for_each_dispatch_target([] {
    for (const int64_t head_dim : {1, 2, 7, 15, 16, 17, 40, 64, 80, 128, 255, 256}) {
      check({.heads = 2, .capacity = 37, .head_dim = head_dim, .value_dim = 257 - head_dim});
    }
  });
}

TEST(DecodeAttention, TakesAnyNumberOfQueriesThatShareAHead) {
  for_each_dispatch_target([] {
    for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 31, 32, 33, 70}) check({.tokens = tokens, .capacity = 290});
    check({.heads = 9, .tokens = 4, .capacity = 50, .scale = -0.3f});
  });
}

TEST(DecodeAttention, ReadsAndWritesHalfPrecision) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      check({.heads = 4,
             .key_heads = 2,
             .tokens = 2,
             .capacity = 140,
             .head_dim = 64,
             .value_dim = 50,
             .dtype = dtype,
             .query_dtype = dtype});
      check({.heads = 3, .capacity = 33, .head_dim = 21, .value_dim = 9, .dtype = dtype});
      check({.heads = 3, .capacity = 33, .query_dtype = dtype});
    }
  });
}

TEST(DecodeAttention, DoesNotReadBeyondALength) {
  for_each_dispatch_target([] {
    Tensors t({.batch = 5, .heads = 2, .tokens = 3, .capacity = 300, .lengths = {300, 0, 2, 3, 131}});
    for (int64_t item = 0; item < 5; ++item) {
      for (int64_t j = t.shape.length(item) * 16; j < 300 * 16; ++j) {
        t.key.values[static_cast<size_t>(item * 300 * 16 + j)] = kNaN;
        t.value.values[static_cast<size_t>(item * 300 * 16 + j)] = kInfinity;
      }
    }
    ASSERT_TRUE(t.run().ok());
    expect_all_rows(t);
    EXPECT_EQ(t.output.values[2 * 3 * 16], 0) << "an empty cache gives zeros";
  });
}

TEST(DecodeAttention, GivesTheBitsOfAContiguousCacheForAPagedOne) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int64_t size : {1, 16, 100, 256, 1000}) {
        const Case c{.batch = 3,
                     .heads = 4,
                     .key_heads = 2,
                     .tokens = 2,
                     .capacity = 400,
                     .head_dim = 40,
                     .value_dim = 17,
                     .lengths = {400, 0, 257},
                     .dtype = dtype};
        Tensors contiguous(c), paged(c);
        ASSERT_TRUE(contiguous.run().ok());
        const Status status = paged.run_paged(size, size == 16 ? DType::kInt64 : DType::kInt32);
        ASSERT_TRUE(status.ok()) << status;
        expect_all_rows(paged);
        ASSERT_EQ(contiguous.output.values, paged.output.values);
        ASSERT_EQ(contiguous.lse, paged.lse);
      }
    }
  });
}

TEST(DecodeAttention, FollowsStrides) {
  // A cache [B, C, H, D] with every second column, and queries [B, L, H, D].
  constexpr int64_t kHeads = 2, kCapacity = 150, kDim = 10, kTokens = 2;
  for_each_dispatch_target([] {
    Tensors expected({.heads = kHeads,
                      .key_heads = kHeads,
                      .tokens = kTokens,
                      .capacity = kCapacity,
                      .head_dim = kDim,
                      .value_dim = kDim});
    ASSERT_TRUE(expected.run().ok());
    std::vector<float> query(expected.query.values.size()), output(query.size());
    std::vector<float> key(expected.key.values.size() * 2, kNaN), value(key);
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t i = 0; i < kDim; ++i) {
        for (int64_t j = 0; j < kCapacity; ++j) {
          const auto from = static_cast<size_t>((head * kCapacity + j) * kDim + i);
          const auto to = static_cast<size_t>(((j * kHeads + head) * kDim + i) * 2);
          key[to] = expected.key.values[from];
          value[to] = expected.value.values[from];
        }
        for (int64_t t = 0; t < kTokens; ++t) {
          query[static_cast<size_t>((t * kHeads + head) * kDim + i)] =
              expected.query.values[static_cast<size_t>((head * kTokens + t) * kDim + i)];
        }
      }
    }
    const auto cache_view = [&](std::vector<float>& memory) {
      return strided_view(memory.data(), DType::kFloat32, {1, kHeads, kCapacity, kDim},
                          {0, 2 * kDim, 2 * kHeads * kDim, 2});
    };
    const auto token_view = [&](std::vector<float>& memory) {
      return strided_view(memory.data(), DType::kFloat32, {1, kHeads, kTokens, kDim}, {0, kDim, kHeads * kDim, 1});
    };
    ASSERT_TRUE(decode_attention(token_view(query), cache_view(key), cache_view(value), {}, token_view(output)).ok());
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < kDim; ++i) {
          ASSERT_EQ(output[static_cast<size_t>((t * kHeads + head) * kDim + i)],
                    expected.output.values[static_cast<size_t>((head * kTokens + t) * kDim + i)]);
        }
      }
    }
  });
}

// A thread takes one run of 256 keys after another, and chunks of 32 queries within each.
TEST(DecodeAttention, CopiesTheRowsOfEveryRun) {
  for_each_dispatch_target([] {
    for (const int64_t heads : {1, 40}) {
      Tensors expected({.heads = heads, .capacity = 700, .head_dim = 20, .value_dim = 24});
      set_num_threads(1);
      ASSERT_TRUE(expected.run().ok());
      expect_all_rows(expected);
      const auto spread = [](const std::vector<float>& values) {
        std::vector<float> memory(2 * values.size(), kNaN);
        for (size_t i = 0; i < values.size(); ++i) memory[2 * i] = values[i];
        return memory;
      };
      std::vector<float> key = spread(expected.key.values), value = spread(expected.value.values);
      std::vector<float> output(expected.output.values.size());
      const TensorView key_view = strided_view(key.data(), DType::kFloat32, {1, 1, 700, 20}, {0, 0, 40, 2});
      const TensorView value_view = strided_view(value.data(), DType::kFloat32, {1, 1, 700, 24}, {0, 0, 48, 2});
      ASSERT_TRUE(
          decode_attention(expected.query_view(), key_view, value_view, {}, f32_view(output, {1, heads, 1, 24})).ok());
      set_num_threads(0);
      EXPECT_EQ(output, expected.output.values);
    }
  });
}

TEST(DecodeAttention, IsSafeForLargeScoresInfinitiesAndDenormals) {
  for_each_dispatch_target([] {
    Tensors large({.heads = 3, .capacity = 600, .scale = 40.0f});
    ASSERT_TRUE(large.run().ok());
    expect_all_rows(large);

    Tensors t({.capacity = 300, .head_dim = 2, .value_dim = 3});
    std::fill(t.query.values.begin(), t.query.values.end(), 1.0f);
    for (size_t i = 0; i < t.key.values.size(); i += 2) t.key.values[i] = -kInfinity;
    ASSERT_TRUE(t.run().ok());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(t.output.values[i], 0) << "only scores of -inf";
    EXPECT_EQ(t.lse[0], -kInfinity);
    t.key.values[10] = kNaN;
    ASSERT_TRUE(t.run().ok());
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(t.output.values[i]));

    Tensors tiny({.capacity = 2});
    std::fill(tiny.value.values.begin(), tiny.value.values.end(), 0x1p-140f);
    ASSERT_TRUE(tiny.run().ok());
    EXPECT_NEAR(tiny.output.values[0], 0x1p-140f, 0x1p-146f) << "denormals are kept";
  });
}

TEST(DecodeAttention, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.batch = 2,
               .heads = 4,
               .key_heads = 2,
               .tokens = 2,
               .capacity = 2000,
               .head_dim = 24,
               .value_dim = 40,
               .lengths = {2000, 777}};
  Tensors one(c), many(c);
  set_num_threads(1);
  ASSERT_TRUE(one.run().ok());
  set_num_threads(3);
  ASSERT_TRUE(many.run().ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.output.data(), many.output.data(), one.output.values.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(one.lse.data(), many.lse.data(), one.lse.size() * sizeof(float)), 0);
}

TEST(DecodeAttention, AcceptsEmptyTensors) {
  check({.capacity = 0});
  check({.batch = 0});
  check({.tokens = 0, .capacity = 5});
  check({.heads = 0, .capacity = 5});
}

}  // namespace
}  // namespace qx::kernels
