#include "quincunx/apps/doctor.h"

#include <hwy/targets.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "quincunx/apps/python_verb.h"
#include "quincunx/base/cpu_features.h"
#include "quincunx/base/version.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::apps {
namespace {

constexpr int64_t kKibibyte = 1024;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;
// PyTorch's data loading workers hand tensors over in /dev/shm; containers give it 64 MiB unless told otherwise. Ranks
// of mccl share anonymous memory instead: `qx doctor comm` tries that out.
constexpr uint64_t kSmallSharedMemoryBytes = 64 * kMebibyte;
constexpr uint64_t kSmallFileLimit = 1024;

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string dispatch_targets() {
  std::string names;
  int64_t remaining = hwy::SupportedTargets();
  while (remaining != 0) {
    const int64_t lowest = remaining & -remaining;  // Highway numbers better targets lower.
    names += (names.empty() ? "" : " ") + std::string(hwy::TargetName(lowest));
    remaining ^= lowest;
  }
  return names;
}

std::string limit_text(rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : std::to_string(value); }

int print_shared_memory(std::ostream& out) {
  struct statvfs stats = {};
  if (statvfs("/dev/shm", &stats) != 0) {
    out << "shared memory     none\nwarning: /dev/shm is missing: PyTorch's data loading workers cannot hand tensors "
           "over\n";
    return 1;
  }
  const uint64_t free_bytes = uint64_t{stats.f_bavail} * stats.f_frsize;
  out << "shared memory     " << free_bytes / kMebibyte << " MiB free in /dev/shm\n";
  if (free_bytes > kSmallSharedMemoryBytes) return 0;
  out << "warning: /dev/shm has " << free_bytes / kMebibyte << " MiB free, expected more than "
      << kSmallSharedMemoryBytes / kMebibyte << " (in a container: --shm-size=1g)\n";
  return 1;
}

int print_limits(std::ostream& out) {
  struct rlimit locked = {};
  struct rlimit files = {};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  getrlimit(RLIMIT_NOFILE, &files);
  out << "locked memory     " << limit_text(locked.rlim_cur) << " bytes\n";
  out << "open files        " << limit_text(files.rlim_cur) << "\n";
  if (files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= kSmallFileLimit) return 0;
  out << "warning: the limit of open files is " << files.rlim_cur << ", expected at least " << kSmallFileLimit
      << " (ulimit -n)\n";
  return 1;
}

}  // namespace

int print_doctor(std::ostream& out) {
  out << "quincunx          " << version() << "\n";
  out << "cpu               " << cpu_name() << "\n";
  out << "cpu features      " << to_string(cpu_features()) << "\n";
  const CacheSizes& caches = cache_sizes();
  out << "caches            " << caches.l1_data_bytes / kKibibyte << " KiB, " << caches.l2_bytes / kKibibyte << " KiB, "
      << caches.l3_bytes / kKibibyte << " KiB (data, levels 1 to 3)\n";
  out << "dispatch targets  " << dispatch_targets() << " (best first)\n";
  out << "threads           " << num_threads() << "\n";
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  out << "memory            " << memory / kMebibyte << " MiB\n";
  const int warnings = print_shared_memory(out) + print_limits(out);
  const Result<std::string> python = find_python();
  out << "python            " << (python.ok() ? *python : "none: " + python.status().message()) << "\n";
  return warnings;
}

}  // namespace qx::apps
