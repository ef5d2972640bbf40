// The compiled regions of this process by key. A key that is not there (a graph out of Inductor's cache, made by
// another process) is compiled from its program by a loader; what cannot be compiled runs through ATen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "quincunx/torch/fusion/compiled_region.h"

namespace qx::torch_bridge {

struct RegionCounters {
  int64_t registered = 0;  // regions with a kernel
  int64_t loaded = 0;      // of these, made from the program of a cached graph
  int64_t runs = 0;        // calls that ran a kernel
  int64_t eager_runs = 0;  // calls that ran through ATen, because the program could not be compiled here
};

// Makes and registers the region of a key; false if it cannot.
using RegionLoader = std::function<bool(int64_t key, const std::string& program)>;

// All thread-safe.
void register_region(int64_t key, std::shared_ptr<const CompiledRegion> region);
void set_region_loader(RegionLoader loader);
// Null if the loader cannot make it either; the loader is asked once for a key.
std::shared_ptr<const CompiledRegion> find_or_load_region(int64_t key, const std::string& program);
bool is_registered(int64_t key);
void count_run(bool eager);
RegionCounters region_counters();

// While on, every call of a region is timed, which makes it slow; times before that are forgotten.
void set_region_timing(bool on);
bool is_region_timing();
void record_time(int64_t key, const RegionTime& time);
// By key, of the last call each.
std::map<int64_t, RegionTime> region_times();

}  // namespace qx::torch_bridge
