#include "quincunx/torch/fusion/region_registry.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace qx::torch_bridge {
namespace {

struct Registry {
  std::shared_mutex mutex;
  // Null: the loader could not make it.
  std::unordered_map<int64_t, std::shared_ptr<const CompiledRegion>> regions;
  RegionLoader loader;
  std::atomic<int64_t> registered = 0;
  std::atomic<int64_t> loaded = 0;
  std::atomic<int64_t> runs = 0;
  std::atomic<int64_t> eager_runs = 0;
  std::atomic<bool> timing = false;
  std::map<int64_t, RegionTime> times;
};

// Never destroyed: a thread may still run a region while the process exits, and the loader holds a Python object.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

void register_region(int64_t key, std::shared_ptr<const CompiledRegion> region) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  const auto [entry, is_new] = all.regions.insert_or_assign(key, std::move(region));
  if (is_new) ++all.registered;
}

void set_region_loader(RegionLoader loader) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  all.loader = std::move(loader);
}

std::shared_ptr<const CompiledRegion> find_or_load_region(int64_t key, const std::string& program) {
  Registry& all = registry();
  RegionLoader loader;
  {
    std::shared_lock lock(all.mutex);
    const auto entry = all.regions.find(key);
    if (entry != all.regions.end()) return entry->second;
    loader = all.loader;
  }
  // Without the lock: the loader takes Python's, which another thread may hold while it waits here.
  const bool made = loader && loader(key, program);
  std::unique_lock lock(all.mutex);
  if (made) ++all.loaded;
  return all.regions.try_emplace(key, nullptr).first->second;
}

bool is_registered(int64_t key) {
  Registry& all = registry();
  std::shared_lock lock(all.mutex);
  const auto entry = all.regions.find(key);
  return entry != all.regions.end() && entry->second != nullptr;
}

void count_run(bool eager) {
  Registry& all = registry();
  (eager ? all.eager_runs : all.runs).fetch_add(1, std::memory_order_relaxed);
}

void set_region_timing(bool on) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  if (on) all.times.clear();
  all.timing = on;
}

bool is_region_timing() { return registry().timing.load(std::memory_order_relaxed); }

void record_time(int64_t key, const RegionTime& time) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  all.times[key] = time;
}

std::map<int64_t, RegionTime> region_times() {
  Registry& all = registry();
  std::shared_lock lock(all.mutex);
  return all.times;
}

RegionCounters region_counters() {
  Registry& all = registry();
  return {all.registered, all.loaded, all.runs, all.eager_runs};
}

}  // namespace qx::torch_bridge
