#include "quincunx/kernels/attention/attention_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/attention/attention.h"
#include "quincunx/kernels/attention/attention_reference.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kDim = 8;

// Scores of 8 products of values below 6 and sums over at most 300 keys, as derived in attention_test.cpp.
constexpr double kTolerance = 2 * (6 * 3.2 * 100 + 6 * 17.4) * 0x1p-24 * 6;

struct Masked {
  int64_t queries, keys;
  std::vector<float> query = normal_values(queries * kDim, 1), key = normal_values(keys * kDim, 2),
                     value = normal_values(keys * kDim, 3),
                     output = std::vector<float>(static_cast<size_t>(queries * kDim));

  Status run(const TensorView& mask) {
    AttentionOptions options;
    options.attn_mask = mask;
    return attention(f32_view(query, {1, 1, queries, kDim}), f32_view(key, {1, 1, keys, kDim}),
                     f32_view(value, {1, 1, keys, kDim}), options, f32_view(output, {1, 1, queries, kDim}));
  }

  // bias(row, key): -inf hides.
  template <typename Bias>
  void expect(const Bias& bias) const {
    for (int64_t row = 0; row < queries; ++row) {
      // A bias is one more coordinate of the query and the key.
      std::vector<double> q(kDim + 1, 1), k, v;
      for (int64_t i = 0; i < kDim; ++i) q[static_cast<size_t>(i)] = query[static_cast<size_t>(row * kDim + i)];
      for (int64_t j = 0; j < keys; ++j) {
        if (bias(row, j) == -kInfinity) continue;
        for (int64_t i = 0; i < kDim; ++i) k.push_back(key[static_cast<size_t>(j * kDim + i)]);
        k.push_back(bias(row, j) * std::sqrt(static_cast<double>(kDim)));
        for (int64_t i = 0; i < kDim; ++i) v.push_back(value[static_cast<size_t>(j * kDim + i)]);
      }
      const AttentionRow expected = attention_reference(q, k, v, kDim, 1 / std::sqrt(static_cast<double>(kDim)));
      for (int64_t i = 0; i < kDim; ++i) {
        ASSERT_NEAR(output[static_cast<size_t>(row * kDim + i)], expected.output[static_cast<size_t>(i)], kTolerance)
            << "row " << row << " column " << i;
      }
    }
  }
};

TEST(AttentionMask, HidesKeysByBoolsAtRaggedLengths) {
  for_each_dispatch_target([] {
    for (const int64_t queries : {1, 7, 97}) {
      for (const int64_t keys : {1, 15, 17, 129, 300}) {
        Masked t{queries, keys};
        std::vector<uint8_t> mask(static_cast<size_t>(queries * keys));
        for (size_t i = 0; i < mask.size(); ++i) mask[i] = i * i % 7 < 3;
        ASSERT_TRUE(t.run(contiguous_view(mask.data(), DType::kBool, {1, 1, queries, keys})).ok());
        t.expect([&](int64_t r, int64_t j) { return mask[static_cast<size_t>(r * keys + j)] ? 0 : -kInfinity; });
      }
    }
  });
}

TEST(AttentionMask, AddsBiasesWithAnyStrides) {
  constexpr int64_t kQueries = 20, kKeys = 140;
  for_each_dispatch_target([] {
    Masked t{kQueries, kKeys};
    std::vector<float> bias = normal_values(kQueries * kKeys, 4);
    bias[3] = bias[700] = -kInfinity;
    ASSERT_TRUE(t.run(f32_view(bias, {1, 1, kQueries, kKeys})).ok());
    t.expect([&](int64_t r, int64_t j) { return bias[static_cast<size_t>(r * kKeys + j)]; });
    ASSERT_TRUE(t.run(strided_view(bias.data(), DType::kFloat32, {1, 1, kQueries, kKeys}, {0, 0, 1, kQueries})).ok());
    t.expect([&](int64_t r, int64_t j) { return bias[static_cast<size_t>(j * kQueries + r)]; });
    ASSERT_TRUE(t.run(strided_view(bias.data(), DType::kFloat32, {1, 1, kQueries, kKeys}, {0, 0, 0, 1})).ok());
    t.expect([&](int64_t, int64_t j) { return bias[static_cast<size_t>(j)]; });
  });
}

TEST(AttentionMask, LeavesRowsThatSeeNothingAtZero) {
  Masked t{100, 300};
  std::vector<uint8_t> mask(100 * 300);
  for (int64_t j = 128; j < 256; ++j) mask[static_cast<size_t>(50 * 300 + j)] = 1;
  ASSERT_TRUE(t.run(contiguous_view(mask.data(), DType::kBool, {1, 1, 100, 300})).ok());
  t.expect([&](int64_t r, int64_t j) { return mask[static_cast<size_t>(r * 300 + j)] ? 0 : -kInfinity; });
  EXPECT_EQ(t.output[0], 0.0f);
}

TEST(AttentionMask, MayBeEmpty) {
  Masked t{200, 0};
  for (const DType dtype : {DType::kBool, DType::kFloat32}) {
    t.output.assign(t.output.size(), 9.0f);
    ASSERT_TRUE(t.run(strided_view(nullptr, dtype, {1, 1, 200, 0}, {0, 0, 1, 200})).ok());
    EXPECT_EQ(t.output, std::vector<float>(200 * kDim, 0.0f));
  }
}

TEST(AttentionMask, NamesBadMasks) {
  Masked t{4, 6};
  std::vector<int64_t> memory(64);
  EXPECT_EQ(t.run(contiguous_view(memory.data(), DType::kInt64, {1, 1, 4, 6})).message(),
            "attn_mask: expected bool or float32, got int64[1, 1, 4, 6]");
  EXPECT_EQ(t.run(contiguous_view(memory.data(), DType::kBool, {1, 1, 6, 4})).message(),
            "attn_mask: expected the batch, heads and length of query float32[1, 1, 4, 8] and the length of key "
            "float32[1, 1, 6, 8], got bool[1, 1, 6, 4]");
}

}  // namespace
}  // namespace qx::kernels
