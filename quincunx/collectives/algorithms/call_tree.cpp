#include "quincunx/collectives/algorithms/call_tree.h"

#include <algorithm>

namespace qx::collectives {
namespace {

// Binomial over 0, 1, ... size - 1. -1 for 0.
int binomial_parent(int place) { return place == 0 ? -1 : place & (place - 1); }

std::vector<int> binomial_children(int place, int size) {
  std::vector<int> children;
  const int end = place == 0 ? size : std::min(size, place + (place & -place));
  for (int step = 1; place + step < end; step *= 2) children.push_back(place + step);
  return children;
}

std::vector<int> children_of(const HostLayout& layout, int rank) {
  const std::vector<int>& local = layout.ranks_of(layout.host_of(rank));
  std::vector<int> children;
  for (const int place : binomial_children(layout.index_of(rank), static_cast<int>(local.size()))) {
    children.push_back(local[static_cast<size_t>(place)]);
  }
  if (layout.index_of(rank) > 0) return children;
  for (const int host : binomial_children(layout.host_of(rank), layout.num_hosts())) {
    children.push_back(layout.carrier(host, 0));
  }
  return children;
}

void append_subtree(const HostLayout& layout, int rank, std::vector<int>& ranks) {
  ranks.push_back(rank);
  for (const int child : children_of(layout, rank)) append_subtree(layout, child, ranks);
}

}  // namespace

CallTree::CallTree(const HostLayout& layout, int rank)
    : rank_(rank), children_(children_of(layout, rank)), child_of_(static_cast<size_t>(layout.num_ranks()), -1) {
  for (const int child : children_) {
    append_subtree(layout, child, below_.emplace_back());
    for (const int each : below_.back()) child_of_[static_cast<size_t>(each)] = child;
  }
  const int host = layout.host_of(rank);
  if (layout.index_of(rank) > 0)
    parent_ = layout.carrier(host, binomial_parent(layout.index_of(rank)));
  else if (host > 0)
    parent_ = layout.carrier(binomial_parent(host), 0);
}

bool CallTree::is_neighbour(int rank) const {
  return rank == parent_ || std::find(children_.begin(), children_.end(), rank) != children_.end();
}

const std::vector<int>& CallTree::below(int child) const {
  const auto found = std::find(children_.begin(), children_.end(), child);
  return below_[static_cast<size_t>(found - children_.begin())];
}

std::vector<int> CallTree::subtree() const {
  std::vector<int> ranks = {rank_};
  for (const auto& below : below_) ranks.insert(ranks.end(), below.begin(), below.end());
  return ranks;
}

}  // namespace qx::collectives
