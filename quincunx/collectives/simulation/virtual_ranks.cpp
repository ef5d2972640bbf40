#include "quincunx/collectives/simulation/virtual_ranks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/bootstrap/front_door.h"
#include "quincunx/collectives/bootstrap/tree_driver.h"

namespace qx::collectives {
namespace {

using Clock = std::chrono::steady_clock;

// Descriptors of a rank: listener, connection to the parent, and that of its child; and one on the way.
constexpr uint64_t kDescriptorsPerRank = 4;
// Timers that are looked at between two waits, beyond those of roots: a scan of thousands costs more than it finds.
constexpr size_t kTimersPerTurn = 64;
constexpr std::chrono::milliseconds kTurn{1};

struct VirtualRank {
  std::unique_ptr<TreeDriver> driver;
  std::unique_ptr<FrontDoor> door;
  bool is_ready = false;
};

// The ranks of one thread.
struct Share {
  std::unique_ptr<EventLoop> loop;
  std::vector<VirtualRank> ranks;
  std::vector<size_t> roots;  // of `ranks`
  int num_ready = 0;
  Status status;
};

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

class VirtualRanks {
 public:
  explicit VirtualRanks(const VirtualRanksOptions& options) : options_(options) {
    const int num_hosts = (options.num_ranks + options.ranks_per_host - 1) / options.ranks_per_host;
    num_roots_ = options.num_roots > 0 ? options.num_roots : std::min(options.num_ranks, default_num_roots(num_hosts));
    root_endpoints_.resize(static_cast<size_t>(num_roots_));
    credentials_ = std::make_shared<const Credentials>();
  }

  Result<VirtualRanksReport> run();

 private:
  Status add_rank(Share& share, int rank);
  void on_action(Share& share, size_t index, const TreeAction& action);
  void serve(Share& share);
  int root_of(int rank) const;
  VirtualRanksReport report(const std::vector<Share>& shares) const;

  const VirtualRanksOptions options_;
  int num_roots_ = 1;
  std::vector<std::string> root_endpoints_;  // written before the threads start
  std::shared_ptr<const Credentials> credentials_;
  std::atomic<int> num_ready_{0};
  std::atomic<bool> has_failed_{false};
  Clock::time_point ready_at_;
};

// -1: none.
int VirtualRanks::root_of(int rank) const {
  const auto root = static_cast<int>(int64_t{rank} * num_roots_ / options_.num_ranks);
  return root_rank(root, options_.num_ranks, num_roots_) == rank ? root : -1;
}

Status VirtualRanks::add_rank(Share& share, int rank) {
  const std::string name = "@qx-virtual-" + std::to_string(getpid()) + "-";
  QX_ASSIGN_OR_RETURN(Listener listener, listen_on("127.0.0.1"));
  TreeOptions options;
  options.rank = rank;
  options.world_size = options_.num_ranks;
  options.job_id = 1;
  options.instance = static_cast<uint64_t>(rank) + 1;
  options.pid = getpid();
  options.num_roots = num_roots_;
  options.endpoints = {listener.endpoint.to_string()};
  // A rank that is alone on its host needs no names.
  const bool is_alone = options_.ranks_per_host == 1;
  options.local_endpoint = is_alone ? options.endpoints[0] : name + "rank-" + std::to_string(rank);
  options.host_endpoint =
      is_alone ? options.endpoints[0] : name + "host-" + std::to_string(rank / options_.ranks_per_host);
  options.timeout = options_.timeout;
  const int root = root_of(rank);
  if (root >= 0) root_endpoints_[static_cast<size_t>(root)] = options.endpoints[0];
  QX_ASSIGN_OR_RETURN(auto node, TreeNode::create(std::move(options)));
  const size_t index = share.ranks.size();
  if (root >= 0) share.roots.push_back(index);
  VirtualRank& added = share.ranks.emplace_back();
  added.driver = std::make_unique<TreeDriver>(
      *share.loop, std::move(node), credentials_,
      [this, &share, index](const TreeAction& action) { on_action(share, index, action); });
  TreeDriver* driver = added.driver.get();
  added.door = std::make_unique<FrontDoor>(
      *share.loop, [driver](Purpose) { return driver->proof(false); },
      [driver](std::shared_ptr<Stream> stream) { driver->adopt(std::move(stream)); });
  added.door->add(std::move(listener.socket), true);
  return ok_status();
}

void VirtualRanks::on_action(Share& share, size_t index, const TreeAction& action) {
  switch (action.kind) {
    case TreeAction::Kind::kLookUpRoot: {
      // Not from within the driver's own call.
      TreeDriver* driver = share.ranks[index].driver.get();
      const int root = root_of(action.rank);
      share.loop->post([this, driver, root, rank = action.rank] {
        driver->on_root_found(rank, {root_endpoints_[static_cast<size_t>(root)]});
      });
      return;
    }
    case TreeAction::Kind::kReady:
      share.ranks[index].is_ready = true;
      if (++num_ready_ == options_.num_ranks) ready_at_ = Clock::now();
      return;
    case TreeAction::Kind::kFailed:
      if (share.status.ok()) share.status = action.status;
      has_failed_ = true;
      return;
    default: return;
  }
}

void VirtualRanks::serve(Share& share) {
  for (VirtualRank& rank : share.ranks) {
    const Status status = rank.driver->start();
    if (status.ok()) continue;
    share.status = status;
    has_failed_ = true;
  }
  size_t turn = 0;
  while (!has_failed_ && num_ready_ < options_.num_ranks) {
    share.loop->run_until(Clock::now() + kTurn);
    const Clock::time_point now = Clock::now();
    const auto look_at = [&](VirtualRank& rank) {
      if (rank.driver->next_timer() <= now) rank.driver->on_timer(now);
    };
    for (const size_t root : share.roots) look_at(share.ranks[root]);
    for (size_t i = 0; i < std::min(kTimersPerTurn, share.ranks.size()); ++i) {
      look_at(share.ranks[turn++ % share.ranks.size()]);
    }
  }
}

VirtualRanksReport VirtualRanks::report(const std::vector<Share>& shares) const {
  VirtualRanksReport report;
  for (const Share& share : shares) {
    for (const VirtualRank& rank : share.ranks) {
      const TreeNode::Statistics& costs = rank.driver->node().statistics();
      report.depth = std::max(report.depth, costs.depth);
      report.fan_in = std::max(report.fan_in, costs.num_children);
      report.mean_bytes += static_cast<double>(costs.bytes_received) / options_.num_ranks;
      report.num_connects += costs.num_connects;
      report.num_messages += costs.messages_sent;
      if (root_of(rank.driver->node().options().rank) >= 0) continue;
      report.most_connections_rank = std::max(report.most_connections_rank, costs.num_children + 1);
      report.bytes_rank = std::max(report.bytes_rank, static_cast<int64_t>(costs.bytes_received));
    }
  }
  return report;
}

Result<VirtualRanksReport> VirtualRanks::run() {
  const Clock::time_point start = Clock::now();
  const double used_s = processor_seconds();
  std::vector<Share> shares(static_cast<size_t>(options_.num_threads));
  for (int thread = 0; thread < options_.num_threads; ++thread) {
    Share& share = shares[static_cast<size_t>(thread)];
    QX_ASSIGN_OR_RETURN(share.loop, EventLoop::create());
    const auto first = int64_t{options_.num_ranks} * thread / options_.num_threads;
    const auto end = int64_t{options_.num_ranks} * (thread + 1) / options_.num_threads;
    share.ranks.reserve(static_cast<size_t>(end - first));
    for (int64_t rank = first; rank < end; ++rank) QX_RETURN_IF_ERROR(add_rank(share, static_cast<int>(rank)));
  }
  std::vector<std::thread> threads;
  for (Share& share : shares) threads.emplace_back([this, &share] { serve(share); });
  for (std::thread& thread : threads) thread.join();
  const double processor_s = processor_seconds() - used_s;
  for (const Share& share : shares) QX_RETURN_IF_ERROR(share.status);
  VirtualRanksReport result = report(shares);
  result.processor_s = processor_s;
  result.ready_s = std::chrono::duration<double>(ready_at_ - start).count();
  return result;
}

Status check(const VirtualRanksOptions& options) {
  const auto wrong = [](const char* name, int value, int low, int high) {
    return invalid_argument(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(low) +
                            " to " + std::to_string(high));
  };
  constexpr int kMostRanks = 1 << 16;
  if (options.num_ranks < 1 || options.num_ranks > kMostRanks)
    return wrong("num_ranks", options.num_ranks, 1, kMostRanks);
  if (options.ranks_per_host < 1) return wrong("ranks_per_host", options.ranks_per_host, 1, options.num_ranks);
  if (options.num_roots < 0 || options.num_roots > options.num_ranks) {
    return wrong("num_roots", options.num_roots, 0, options.num_ranks);
  }
  if (options.num_threads < 1 || options.num_threads > options.num_ranks) {
    return wrong("num_threads", options.num_threads, 1, options.num_ranks);
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const uint64_t needed = kDescriptorsPerRank * static_cast<uint64_t>(options.num_ranks) + 100;
  if (files.rlim_cur >= needed) return ok_status();
  return resource_exhausted("the limit of open files is " + std::to_string(files.rlim_cur) + ", expected " +
                            std::to_string(needed) + " for " + std::to_string(options.num_ranks) +
                            " virtual ranks (ulimit -n)");
}

}  // namespace

Result<VirtualRanksReport> run_virtual_ranks(const VirtualRanksOptions& options) {
  QX_RETURN_IF_ERROR(check(options));
  return VirtualRanks(options).run();
}

}  // namespace qx::collectives
