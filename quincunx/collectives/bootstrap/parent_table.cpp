#include "quincunx/collectives/bootstrap/parent_table.h"

#include <algorithm>
#include <utility>

namespace qx::collectives {
namespace {

// A parent that so many could not reach gets no more children: its address does not route, or it has just died.
constexpr int kMaxFailures = 2;

}  // namespace

ParentTable::ParentTable(int own, int own_children, int children) : own_children_(own_children), children_(children) {
  index_for(own, 0, {});
}

int ParentTable::index_of(int rank) const {
  const auto found = indices_.find(rank);
  return found == indices_.end() ? -1 : found->second;
}

int ParentTable::index_for(int rank, uint64_t instance, Endpoints endpoints) {
  const auto [found, is_new] = indices_.try_emplace(rank, static_cast<int>(entries_.size()));
  if (is_new) entries_.emplace_back();
  Entry& entry = entries_[static_cast<size_t>(found->second)];
  entry.rank = rank;
  entry.instance = instance;
  entry.endpoints = std::move(endpoints);
  entry.is_gone = false;
  return found->second;
}

bool ParentTable::takes_children(int index) const {
  const Entry& entry = entries_[static_cast<size_t>(index)];
  if (index == 0) return entry.num_children < own_children_;
  const bool is_reachable = !entry.is_gone && entry.num_failures < kMaxFailures && !entry.endpoints.empty();
  return is_reachable && entry.parent >= 0 && entry.num_children < children_;
}

bool ParentTable::is_below(int index, int ancestor) const {
  for (; index >= 0; index = entries_[static_cast<size_t>(index)].parent) {
    if (index == ancestor) return true;
  }
  return false;
}

void ParentTable::release(int index) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.parent < 0) return;
  --entries_[static_cast<size_t>(entry.parent)].num_children;
  freed_.push_back(entry.parent);
  entry.parent = -1;
}

int ParentTable::choose(int index, int unreachable) {
  if (takes_children(0)) return 0;
  const auto fits = [&](int candidate) {
    return takes_children(candidate) && candidate != unreachable && !is_below(candidate, index);
  };
  while (!freed_.empty() && !takes_children(freed_.front())) freed_.pop_front();
  for (const int candidate : freed_) {
    if (fits(candidate)) return candidate;
  }
  while (next_ < entries_.size() && !takes_children(static_cast<int>(next_))) {
    // An entry without a parent is on its way to one, and has room later.
    if (entries_[next_].parent < 0 && next_ > 0 && !entries_[next_].is_gone) break;
    ++next_;
  }
  for (size_t candidate = next_; candidate < entries_.size(); ++candidate) {
    if (fits(static_cast<int>(candidate))) return static_cast<int>(candidate);
  }
  return -1;
}

ParentTable::Place ParentTable::place(int rank, uint64_t instance, Endpoints endpoints, int unreachable) {
  const int index = index_for(rank, instance, std::move(endpoints));
  const int failed = index_of(unreachable);
  if (failed > 0) ++entries_[static_cast<size_t>(failed)].num_failures;
  release(index);
  const int parent = choose(index, failed);
  if (parent < 0) return {};
  entries_[static_cast<size_t>(index)].parent = parent;
  ++entries_[static_cast<size_t>(parent)].num_children;
  if (static_cast<size_t>(index) < next_) freed_.push_back(index);
  const Entry& chosen = entries_[static_cast<size_t>(parent)];
  return {chosen.rank, chosen.endpoints};
}

void ParentTable::adopt(int rank, uint64_t instance, Endpoints endpoints) {
  const int index = index_for(rank, instance, std::move(endpoints));
  release(index);
  entries_[static_cast<size_t>(index)].parent = 0;
  ++entries_[0].num_children;
}

void ParentTable::remove(int rank) {
  const int index = index_of(rank);
  if (index <= 0) return;
  release(index);
  entries_[static_cast<size_t>(index)].is_gone = true;
}

uint64_t ParentTable::instance_of(int rank) const {
  const int index = index_of(rank);
  return index < 0 || entries_[static_cast<size_t>(index)].is_gone ? 0 : entries_[static_cast<size_t>(index)].instance;
}

}  // namespace qx::collectives
