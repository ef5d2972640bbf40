// How many CPUs this process may use, which in containers is fewer than the machine has.
#pragma once

#include <optional>
#include <string>

namespace qx {

// CPUs in the affinity mask, capped by the CPU quota of the cgroup (rounded up). At least 1. Found at the first call.
int num_available_cpus();

// The tightest quota in CPUs, 1.5 for example, on the way from this process's cgroup to the root; none if unlimited.
// `proc_cgroup` is /proc/self/cgroup, `root` the folder where the cgroup file systems are mounted. Reads version 2
// (cpu.max) and version 1 (cpu/cpu.cfs_quota_us).
std::optional<double> cgroup_cpu_quota(const std::string& proc_cgroup, const std::string& root);

}  // namespace qx
