// Starts the ranks of a job as processes of this host and times them from the common start until all are connected and
// to the end of the first collective, then a new group of all; counts the descriptors of each. Prints one line of JSON.
// `--ranks N` says how many (64), `--ready` that each waits until all are connected before it calls the collective.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/store/file_store.h"

namespace {

using namespace qx::collectives;
using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 1024;

// Written by the ranks, read by the parent.
struct Report {
  Clock::time_point start;
  struct Rank {
    Clock::time_point ready;  // all have been seen
    Clock::time_point end;    // of the first collective
    double new_group_s = 0;
    int num_descriptors = 0;      // once connected
    int num_new_descriptors = 0;  // by the new group and its first collective
  } ranks[kMostRanks];
};

void check(const qx::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  _exit(1);
}

struct Job {
  int num_ranks = 64;
  bool waits = false;
};

int count_descriptors() {
  int count = -1;  // the directory itself is open
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

void all_reduce(Communicator& group) {
  int64_t one = 1;
  check(group.all_reduce({&one, 1, qx::DType::kInt64}, {})->wait());
  if (one != group.options().world_size) check(qx::internal_error("the sum is " + std::to_string(one)));
}

void run_rank(int rank, const Job& job, const std::string& directory, Report::Rank& report) {
  const int num_ranks = job.num_ranks;
  Options options;
  options.rank = rank;
  options.world_size = num_ranks;
  options.timeout = std::chrono::seconds(60);
  auto store = FileStore::open(directory);
  check(store.status());
  auto group = Communicator::create(options, *store);
  check(group.status());
  if (job.waits) check((*group)->wait_ready(options.timeout));
  report.ready = Clock::now();
  all_reduce(**group);
  report.end = Clock::now();
  check((*group)->barrier()->wait());
  report.num_descriptors = count_descriptors();
  check((*group)->barrier()->wait());
  std::vector<int> members(static_cast<size_t>(num_ranks));
  for (int r = 0; r < num_ranks; ++r) members[static_cast<size_t>(r)] = r;
  const Clock::time_point begin = Clock::now();
  auto all = (*group)->split(members, "all");
  check(all.status());
  report.new_group_s = std::chrono::duration<double>(Clock::now() - begin).count();
  all_reduce(**all);
  report.num_new_descriptors = count_descriptors() - report.num_descriptors;
  check((*group)->barrier()->wait());
}

int run(const Job& job) {
  const int num_ranks = job.num_ranks;
  void* memory = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::string directory = (std::filesystem::temp_directory_path() / "qx-start-XXXXXX").string();
  int gate[2];
  if (memory == MAP_FAILED || mkdtemp(directory.data()) == nullptr || pipe(gate) != 0) return 1;
  auto* report = new (memory) Report;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < num_ranks; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    close(gate[1]);
    char ignored = 0;
    if (read(gate[0], &ignored, 1) < 0) _exit(1);  // ends when the parent closes it
    close(gate[0]);
    run_rank(rank, job, directory, report->ranks[rank]);
    _exit(0);
  }
  usleep(100000);  // all have been forked, and wait
  report->start = Clock::now();
  close(gate[1]);
  bool ok = true;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::filesystem::remove_all(directory);
  if (!ok) return 1;
  double seconds = 0, ready_s = 0, new_group_s = 0;
  int descriptors = 0, new_descriptors = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Report::Rank& one = report->ranks[rank];
    seconds = std::max(seconds, std::chrono::duration<double>(one.end - report->start).count());
    ready_s = std::max(ready_s, std::chrono::duration<double>(one.ready - report->start).count());
    new_group_s = std::max(new_group_s, one.new_group_s);
    descriptors = std::max(descriptors, one.num_descriptors);
    new_descriptors = std::max(new_descriptors, one.num_new_descriptors);
  }
  std::printf("{\"ranks\": %d, \"seconds\": %.6f, \"new_group_seconds\": %.6f, \"descriptors\": %d, ", num_ranks,
              seconds, new_group_s, descriptors);
  if (job.waits) std::printf("\"ready_seconds\": %.6f, ", ready_s);
  std::printf("\"new_descriptors\": %d}\n", new_descriptors);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--ranks" && i + 1 < argc) job.num_ranks = std::atoi(argv[i + 1]);
    job.waits = job.waits || argument == "--ready";
  }
  if (job.num_ranks < 1 || job.num_ranks > kMostRanks) check(qx::invalid_argument("--ranks: expected 1 to 1024"));
  return run(job);
}
