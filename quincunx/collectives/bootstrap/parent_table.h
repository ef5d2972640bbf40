// Who gets which parent: what the leader of a host keeps of its ranks, and a root of its leaders. The tree is filled in
// the order of arrival, level by level.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "quincunx/collectives/bootstrap/tree_message.h"

namespace qx::collectives {

class ParentTable {
 public:
  // `own` is whoever keeps the table; it takes `own_children`, the others take `children` each.
  ParentTable(int own, int own_children, int children);

  struct Place {
    int parent = -1;  // -1: nobody can take it at present
    Endpoints endpoints;
  };
  // A new rank, or one that has lost its parent: never below itself, and never again below `unreachable`, which is its
  // last parent that it did not reach.
  Place place(int rank, uint64_t instance, Endpoints endpoints, int unreachable);
  // A child that `own` has without having placed it.
  void adopt(int rank, uint64_t instance, Endpoints endpoints);
  // Dead, or left: its children are to ask again.
  void remove(int rank);

  // The process that holds the rank; 0 when there is none.
  uint64_t instance_of(int rank) const;

 private:
  struct Entry {
    int rank = -1;
    int parent = -1;  // index; -1: none
    int num_children = 0;
    int num_failures = 0;  // children that could not reach it
    bool is_gone = false;
    uint64_t instance = 0;
    Endpoints endpoints;
  };
  int index_of(int rank) const;
  int index_for(int rank, uint64_t instance, Endpoints endpoints);
  bool takes_children(int index) const;
  bool is_below(int index, int ancestor) const;
  void release(int index);
  int choose(int index, int unreachable);

  const int own_children_;
  const int children_;
  std::vector<Entry> entries_;  // by arrival; 0 is own
  std::unordered_map<int, int> indices_;
  size_t next_ = 0;        // no entry before it has had room, but those in freed_
  std::deque<int> freed_;  // have room again
};

}  // namespace qx::collectives
