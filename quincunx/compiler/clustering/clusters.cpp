#include "quincunx/compiler/clustering/clusters.h"

#include <algorithm>
#include <numeric>

namespace qx::compiler {
namespace {

class Clustering {
 public:
  Clustering(const ClusterGraph& graph, const AcceptCluster& accept)
      : graph_(graph), accept_(accept), cluster_(graph.inputs.size()), users_(graph.inputs.size()) {
    std::iota(cluster_.begin(), cluster_.end(), 0);
    for (size_t node = 0; node < cluster_.size(); ++node) {
      members_.push_back({static_cast<int32_t>(node)});
      for (const int32_t input : graph.inputs[node]) users_[input].push_back(static_cast<int32_t>(node));
    }
  }

  std::vector<std::vector<int32_t>> run() {
    do {
      while (sweep()) {
      }
    } while (mergeSiblings());
    std::vector<std::vector<int32_t>> result;
    for (size_t node = 0; node < cluster_.size(); ++node) {
      if (graph_.candidate[node] && cluster_[node] == static_cast<int32_t>(node)) result.push_back(members_[node]);
    }
    return result;
  }

 private:
  bool sweep() {
    bool merged = false;
    for (size_t node = 0; node < cluster_.size(); ++node) {
      if (!graph_.candidate[node]) continue;
      std::vector<int32_t> inputs = graph_.inputs[node];
      std::ranges::sort(inputs, [&](int32_t a, int32_t b) {
        const int64_t difference = graph_.result_bytes[a] - graph_.result_bytes[b];
        return difference != 0 ? difference > 0 : a < b;
      });
      for (const int32_t input : inputs) {
        if (graph_.candidate[input]) merged |= tryMerge(cluster_[input], cluster_[node]);
      }
    }
    return merged;
  }

  bool mergeSiblings() {
    bool merged = false;
    for (const auto& [a, b] : graph_.siblings) {
      if (hasReduction(cluster_[a]) && hasReduction(cluster_[b])) merged |= tryMerge(cluster_[a], cluster_[b]);
    }
    return merged;
  }

  bool hasReduction(int32_t cluster) const {
    return std::ranges::any_of(members_[cluster], [&](int32_t node) { return graph_.reduces[node]; });
  }

  bool tryMerge(int32_t a, int32_t b) {
    if (a == b || reaches(a, b) || reaches(b, a)) return false;
    std::vector<int32_t> together;
    std::ranges::merge(members_[a], members_[b], std::back_inserter(together));
    if (!accept_(together)) return false;
    const int32_t first = std::min(a, b);
    for (const int32_t member : together) cluster_[member] = first;
    members_[std::max(a, b)].clear();
    members_[first] = std::move(together);
    return true;
  }

  // Whether a path leads from cluster `from` to cluster `to` through at least one cluster between.
  bool reaches(int32_t from, int32_t to) {
    std::vector<bool> seen(cluster_.size());
    std::vector<int32_t> pending;
    const auto visit = [&](int32_t cluster, bool is_start) {
      for (const int32_t member : members_[cluster]) {
        for (const int32_t user : users_[member]) {
          const int32_t next = cluster_[user];
          if (next == cluster || seen[next] || (is_start && next == to)) continue;
          seen[next] = true;
          pending.push_back(next);
        }
      }
    };
    visit(from, true);
    while (!pending.empty()) {
      const int32_t cluster = pending.back();
      pending.pop_back();
      if (cluster == to) return true;
      visit(cluster, false);
    }
    return false;
  }

  const ClusterGraph& graph_;
  const AcceptCluster& accept_;
  // A cluster is named after its first member.
  std::vector<int32_t> cluster_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<std::vector<int32_t>> users_;
};

}  // namespace

std::vector<std::vector<int32_t>> findClusters(const ClusterGraph& graph, const AcceptCluster& accept) {
  return Clustering(graph, accept).run();
}

}  // namespace qx::compiler
