// The operators of a key-value cache, against loops over the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lite/graph_builder.h"

namespace qx::lite {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr int64_t kHeads = 4, kKeyHeads = 2, kCapacity = 24, kWidth = 6;
constexpr float kScale = 0.4f;
// Scores and weights are sums of a few f32 products.
constexpr float kTolerance = 2e-6f;

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// Appends new keys and values at `position` and attends: a decoder's layer without its products.
graph::Graph decoder_graph() {
  GraphBuilder builder;
  const int32_t length = builder.symbol("length", 1, kCapacity);
  const std::vector<graph::Dim> cache = {known(1), known(kKeyHeads), known(kCapacity), known(kWidth)};
  const std::vector<graph::Dim> rows = {known(1), known(kKeyHeads), symbol(length), known(kWidth)};
  const std::vector<graph::Dim> queries = {known(1), known(kHeads), symbol(length), known(kWidth)};
  const auto query = builder.input("query", kF32, queries);
  const auto key = builder.input("key", kF32, rows);
  const auto value = builder.input("value", kF32, rows);
  const auto position = builder.input("position", DType::kInt64, {});
  const auto keys = builder.value(kF32, cache, "keys");
  const auto values = builder.value(kF32, cache, "values");
  const auto new_keys = builder.call("qx.kv_append", {ref(keys), ref(key), ref(position)}, kF32, cache);
  const auto new_values = builder.call("qx.kv_append", {ref(values), ref(value), ref(position)}, kF32, cache);
  builder.state("keys", keys, new_keys);
  builder.state("values", values, new_values);
  builder.output(builder.call("qx.attention_cached",
                              {ref(query), ref(new_keys), ref(new_values), ref(position), double{kScale}}, kF32,
                              queries));
  return builder.graph();
}

// All tokens so far, [H, n, K] by head.
struct History {
  std::vector<std::vector<float>> rows;  // of each token: [H * K]
};

float attended(const std::vector<float>& query, int64_t head, const History& keys, const History& values,
               size_t num_visible, int64_t column) {
  const int64_t key_head = head / (kHeads / kKeyHeads);
  double weight_sum = 0, sum = 0;
  for (size_t j = 0; j < num_visible; ++j) {
    double score = 0;
    for (int64_t k = 0; k < kWidth; ++k) {
      score += static_cast<double>(query[static_cast<size_t>(head * kWidth + k)]) *
               static_cast<double>(keys.rows[j][static_cast<size_t>(key_head * kWidth + k)]);
    }
    const double weight = std::exp(score * static_cast<double>(kScale));
    weight_sum += weight;
    sum += weight * static_cast<double>(values.rows[j][static_cast<size_t>(key_head * kWidth + column)]);
  }
  return static_cast<float>(sum / weight_sum);
}

// [n, H, K] by token -> [1, H, n, K].
std::vector<float> by_head(const std::vector<std::vector<float>>& tokens, int64_t heads) {
  std::vector<float> result;
  for (int64_t head = 0; head < heads; ++head) {
    for (const auto& token : tokens) {
      result.insert(result.end(), token.begin() + head * kWidth, token.begin() + (head + 1) * kWidth);
    }
  }
  return result;
}

TEST(CachedAttention, AttendsToAllTokensSoFarInStepsOfAnyLength) {
  Session session = Session::create({decoder_graph()}).value();
  History keys, values;
  uint32_t seed = 1;
  for (const int64_t length : {3, 1, 18, 1, 1}) {
    std::vector<std::vector<float>> queries, new_keys, new_values;
    std::vector<int64_t> position = {static_cast<int64_t>(keys.rows.size())};
    for (int64_t i = 0; i < length; ++i) {
      queries.push_back(random_values(kHeads * kWidth, seed++));
      new_keys.push_back(random_values(kKeyHeads * kWidth, seed++));
      new_values.push_back(random_values(kKeyHeads * kWidth, seed++));
      keys.rows.push_back(new_keys.back());
      values.rows.push_back(new_values.back());
    }
    std::vector<float> q = by_head(queries, kHeads), k = by_head(new_keys, kKeyHeads),
                       v = by_head(new_values, kKeyHeads);
    const auto outputs = session.run(
        "forward", std::vector{view_of(q, {1, kHeads, length, kWidth}), view_of(k, {1, kKeyHeads, length, kWidth}),
                               view_of(v, {1, kKeyHeads, length, kWidth}), view_of(position, {})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const std::vector<float> result = values_of<float>(outputs->at(0));
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t column = 0; column < kWidth; ++column) {
          const auto visible = static_cast<size_t>(position[0] + i + 1);
          const float expected = attended(queries[static_cast<size_t>(i)], head, keys, values, visible, column);
          EXPECT_NEAR(result[static_cast<size_t>((head * length + i) * kWidth + column)], expected, kTolerance);
        }
      }
    }
  }
}

TEST(CachedAttention, WritesTheCacheInPlace) {
  Session session = Session::create({decoder_graph()}).value();
  const MemoryReport report =
      session.memory("forward", {{1, kHeads, 1, kWidth}, {1, kKeyHeads, 1, kWidth}, {1, kKeyHeads, 1, kWidth}, {}})
          .value();
  EXPECT_EQ(report.arena_bytes, 0) << "the appended caches need no memory beside the states";
  EXPECT_EQ(report.state_bytes, 2 * kKeyHeads * kCapacity * kWidth * 4);
}

TEST(CachedAttention, LeavesACacheThatIsStillReadAlone) {
  // The old cache is an output too: the append must not overwrite it.
  GraphBuilder builder;
  const std::vector<graph::Dim> shape = {known(1), known(1), known(2), known(1)};
  const auto row = builder.input("row", kF32, {known(1), known(1), known(1), known(1)});
  const auto position = builder.input("position", DType::kInt64, {});
  const auto cache = builder.value(kF32, shape, "cache");
  const auto appended = builder.call("qx.kv_append", {ref(cache), ref(row), ref(position)}, kF32, shape);
  builder.state("cache", cache, appended);
  builder.output(cache);
  builder.output(appended);
  Session session = Session::create({builder.graph()}).value();
  std::vector<float> value = {5};
  std::vector<int64_t> at = {1};
  const auto outputs = session.run("forward", std::vector{view_of(value, {1, 1, 1, 1}), view_of(at, {})}).value();
  EXPECT_EQ(values_of<float>(outputs[0]), (std::vector<float>{0, 0}));
  EXPECT_EQ(values_of<float>(outputs[1]), (std::vector<float>{0, 5}));
  EXPECT_EQ(session.state("cache").value().data_as<float>()[1], 5);
}

TEST(CachedAttention, RefusesMoreTokensThanTheCacheHolds) {
  Session session = Session::create({decoder_graph()}).value();
  std::vector<float> q(kHeads * kWidth), k(kKeyHeads * kWidth);
  for (const int64_t at : {kCapacity, INT64_MAX}) {
    std::vector<int64_t> position = {at};
    const Status status =
        session
            .run("forward", std::vector{view_of(q, {1, kHeads, 1, kWidth}), view_of(k, {1, kKeyHeads, 1, kWidth}),
                                        view_of(k, {1, kKeyHeads, 1, kWidth}), view_of(position, {})})
            .status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("position " + std::to_string(at) + " and 1 new rows exceed the capacity of 24"),
              std::string::npos)
        << status;
  }
  std::vector<int64_t> negative = {-1};
  EXPECT_FALSE(
      session
          .run("forward", std::vector{view_of(q, {1, kHeads, 1, kWidth}), view_of(k, {1, kKeyHeads, 1, kWidth}),
                                      view_of(k, {1, kKeyHeads, 1, kWidth}), view_of(negative, {})})
          .ok());
}

}  // namespace
}  // namespace qx::lite
