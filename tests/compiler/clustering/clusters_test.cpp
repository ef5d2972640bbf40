#include "quincunx/compiler/clustering/clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace qx::compiler {
namespace {

bool acceptAll(std::span<const int32_t>) { return true; }

using Sets = std::vector<std::vector<int32_t>>;

// Which cluster each node is in; nodes that are no candidates are alone.
std::vector<int32_t> clusterOf(const ClusterGraph& graph, const Sets& clusters) {
  std::vector<int32_t> cluster(graph.inputs.size(), -1);
  for (size_t i = 0; i < clusters.size(); ++i) {
    for (const int32_t node : clusters[i]) cluster[node] = static_cast<int32_t>(i);
  }
  auto next = static_cast<int32_t>(clusters.size());
  for (int32_t& entry : cluster) entry = entry < 0 ? next++ : entry;
  return cluster;
}

// Warshall's closure of the graph whose nodes are the clusters: a cluster that reaches itself lies on a cycle.
bool hasCycle(const ClusterGraph& graph, const Sets& clusters) {
  const std::vector<int32_t> cluster = clusterOf(graph, clusters);
  const auto count = static_cast<size_t>(*std::ranges::max_element(cluster)) + 1;
  std::vector<std::vector<char>> reach(count, std::vector<char>(count));
  for (size_t node = 0; node < cluster.size(); ++node) {
    for (const int32_t input : graph.inputs[node]) {
      if (cluster[input] != cluster[node]) reach[cluster[input]][cluster[node]] = 1;
    }
  }
  for (size_t k = 0; k < count; ++k) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) reach[i][j] |= reach[i][k] & reach[k][j];
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (reach[i][i] != 0) return true;
  }
  return false;
}

ClusterGraph randomGraph(std::mt19937& random, int32_t size) {
  ClusterGraph graph;
  for (int32_t node = 0; node < size; ++node) {
    std::set<int32_t> inputs;
    for (int i = 0; node > 0 && i < 2; ++i) inputs.insert(static_cast<int32_t>(random() % node));
    graph.inputs.emplace_back(inputs.begin(), inputs.end());
    graph.candidate.push_back(random() % 4 != 0);
    graph.result_bytes.push_back(static_cast<int64_t>(random() % 100));
  }
  return graph;
}

TEST(Clusters, MergesSiblingsWhereBothReduce) {
  ClusterGraph graph;
  graph.inputs = {{}, {}, {0}, {1}, {}};
  graph.candidate = {true, true, true, true, true};
  graph.result_bytes = {1, 1, 1, 1, 1};
  graph.reduces = {false, false, true, true, false};
  graph.siblings = {{0, 1}, {1, 4}};
  EXPECT_EQ(findClusters(graph, acceptAll), (Sets{{0, 1, 2, 3}, {4}}));
}

TEST(Clusters, MergesAChain) {
  const ClusterGraph graph = {{{}, {0}, {1}}, {true, true, true}, {1, 1, 1}, {}, {}};
  EXPECT_EQ(findClusters(graph, acceptAll), (Sets{{0, 1, 2}}));
}

TEST(Clusters, LeavesOutWhatIsNoCandidate) {
  // 0 -> 1 -> 2 with 1 outside: 0 and 2 may not be one, or 1 would have to run in their middle.
  const ClusterGraph graph = {{{}, {0}, {0, 1}}, {true, false, true}, {1, 1, 1}, {}, {}};
  EXPECT_EQ(findClusters(graph, acceptAll), (Sets{{0}, {2}}));
}

TEST(Clusters, SeesACycleThroughAnotherCluster) {
  // 0 -> 1 -> 4 and 0 -> 2 -> 3 -> 4 with 2 outside: if all others were one, 2 would wait for it and it for 2.
  const ClusterGraph graph = {{{}, {0}, {0}, {2}, {1, 3}}, {true, true, false, true, true}, {9, 8, 1, 1, 1}, {}, {}};
  const Sets clusters = findClusters(graph, acceptAll);
  EXPECT_FALSE(hasCycle(graph, clusters));
  EXPECT_EQ(clusters, (Sets{{0, 1}, {3, 4}}));
}

TEST(Clusters, MergesTheDearestEdgeFirst) {
  // At most two nodes a cluster: node 2 goes with the larger of its inputs.
  const auto pairs = [](std::span<const int32_t> nodes) { return nodes.size() <= 2; };
  const ClusterGraph graph = {{{}, {}, {0, 1}}, {true, true, true}, {10, 20, 1}, {}, {}};
  EXPECT_EQ(findClusters(graph, pairs), (Sets{{0}, {1, 2}}));
}

TEST(Clusters, AreAcyclicAndCannotGrowOnRandomGraphs) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const ClusterGraph graph = randomGraph(random, 4 + round % 9);
    const auto accept = [&](std::span<const int32_t> nodes) { return nodes.size() <= 4; };
    const Sets clusters = findClusters(graph, accept);
    ASSERT_FALSE(hasCycle(graph, clusters));
    std::set<int32_t> seen;
    for (const auto& cluster : clusters) {
      ASSERT_TRUE(accept(cluster));
      for (const int32_t node : cluster) ASSERT_TRUE(graph.candidate[node] && seen.insert(node).second);
    }
    ASSERT_EQ(seen.size(), static_cast<size_t>(std::ranges::count(graph.candidate, true)));
    const std::vector<int32_t> cluster = clusterOf(graph, clusters);
    for (size_t node = 0; node < cluster.size(); ++node) {
      for (const int32_t input : graph.inputs[node]) {
        const int32_t a = std::min(cluster[input], cluster[node]);
        const int32_t b = std::max(cluster[input], cluster[node]);
        if (a == b || !graph.candidate[input] || !graph.candidate[node]) continue;
        Sets merged = clusters;
        merged[a].insert(merged[a].end(), clusters[b].begin(), clusters[b].end());
        merged.erase(merged.begin() + b);
        ASSERT_TRUE(merged[a].size() > 4 || hasCycle(graph, merged)) << "round " << round;
      }
    }
  }
}

// The most bytes that any partition keeps inside its clusters, by trying them all.
int64_t savedBytes(const ClusterGraph& graph, const std::vector<int32_t>& cluster) {
  int64_t saved = 0;
  for (size_t node = 0; node < cluster.size(); ++node) {
    for (const int32_t input : graph.inputs[node])
      saved += cluster[input] == cluster[node] ? graph.result_bytes[input] : 0;
  }
  return saved;
}

void tryPartitions(const ClusterGraph& graph, size_t node, std::vector<int32_t>& group, int32_t groups, int64_t& best) {
  if (node == graph.inputs.size()) {
    Sets sets(groups);
    for (size_t i = 0; i < group.size(); ++i) {
      if (graph.candidate[i]) sets[group[i]].push_back(static_cast<int32_t>(i));
    }
    std::erase_if(sets, [](const auto& set) { return set.empty(); });
    if (!hasCycle(graph, sets)) best = std::max(best, savedBytes(graph, clusterOf(graph, sets)));
    return;
  }
  for (int32_t choice = 0; choice <= (graph.candidate[node] ? groups : 0); ++choice) {
    group[node] = choice;
    tryPartitions(graph, node + 1, group, std::max(groups, choice + 1), best);
  }
}

TEST(Clusters, SaveNearlyAllThatAnyPartitionSaves) {
  std::mt19937 random(5);
  int64_t ours = 0;
  int64_t best = 0;
  for (int round = 0; round < 40; ++round) {
    const ClusterGraph graph = randomGraph(random, 7);
    std::vector<int32_t> group(7);
    int64_t optimum = 0;
    tryPartitions(graph, 0, group, 1, optimum);
    const int64_t saved = savedBytes(graph, clusterOf(graph, findClusters(graph, acceptAll)));
    ASSERT_LE(saved, optimum);
    ours += saved;
    best += optimum;
  }
  EXPECT_GE(static_cast<double>(ours), 0.9 * static_cast<double>(best));
}

}  // namespace
}  // namespace qx::compiler
