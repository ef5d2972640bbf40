// `qx plan comm`: how long a job of thousands of ranks takes to connect, what that costs, and what its ranks say when
// some of them fail, without starting one.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::apps {

struct PlanCommArguments {
  std::string algorithm = "tree";  // "gloo", "gloo-batched": a full mesh and one store
  int num_ranks = 0;
  int ranks_per_host = 8;
  int num_roots = 0;  // 0: one for each 128 hosts
  std::vector<std::string> faults;
  uint64_t seed = 1;
  double timeout_s = 60;
  double start_skew_s = 0.05;
  double round_trip_us = 100;
  double loss = 0;
  bool one_machine = false;
  bool processes = false;  // with one_machine: each rank is one
  int cores = 1;           // with one_machine
  // Connects them here too, as virtual ranks of this process on loopback sockets.
  bool measure = false;
  bool json = false;
};

// Prints the plan, as text or as one JSON object.
Status plan_comm(const PlanCommArguments& arguments, std::ostream& out);

}  // namespace qx::apps
