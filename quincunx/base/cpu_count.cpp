#include "quincunx/base/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace qx {
namespace {

// Version 2: "max 100000" or "150000 100000".
std::optional<double> quota_in_cpu_max(const std::string& file) {
  double quota = 0;
  double period = 0;
  if (!(std::ifstream(file) >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// Version 1: a quota of -1 means no limit.
std::optional<double> quota_in_cfs_files(const std::string& folder) {
  double quota = 0;
  double period = 0;
  if (!(std::ifstream(folder + "/cpu.cfs_quota_us") >> quota) || quota <= 0) return std::nullopt;
  if (!(std::ifstream(folder + "/cpu.cfs_period_us") >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

void tighten(std::optional<double>& limit, std::optional<double> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// The path of the group in the hierarchy of `controller` ("" is version 2), from lines like "4:cpu,cpuacct:/docker/ab".
std::optional<std::string> group_path(const std::string& proc_cgroup, const std::string& controller) {
  std::ifstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    if (controller.empty() && second == first + 1) return line.substr(second + 1);
    for (std::string name; std::getline(names, name, ',');) {
      if (name == controller) return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// Calls visit("/a/b"), visit("/a"), visit(""): a limit of any ancestor holds.
template <typename Visit>
void visit_upwards(std::string path, Visit visit) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  for (;;) {
    visit(path);
    if (path.empty()) return;
    const size_t parent = path.rfind('/');
    path.resize(parent == std::string::npos ? 0 : parent);
  }
}

int count_available_cpus() {
  cpu_set_t mask;
  int count = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
  const std::optional<double> quota = cgroup_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota && *quota < count) count = static_cast<int>(std::ceil(*quota));
  return std::max(1, count);
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& proc_cgroup, const std::string& root) {
  std::optional<double> limit;
  if (const auto path = group_path(proc_cgroup, "")) {
    visit_upwards(*path,
                  [&](const std::string& group) { tighten(limit, quota_in_cpu_max(root + group + "/cpu.max")); });
  }
  if (const auto path = group_path(proc_cgroup, "cpu")) {
    visit_upwards(*path, [&](const std::string& group) { tighten(limit, quota_in_cfs_files(root + "/cpu" + group)); });
  }
  return limit;
}

int num_available_cpus() {
  static const int count = count_available_cpus();
  return count;
}

}  // namespace qx
