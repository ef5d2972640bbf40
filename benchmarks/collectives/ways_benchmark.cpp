// Each way against the others, in turns within one run: calls direct or through a tree, large messages through rings or
// copied by the system. Microseconds of the slowest rank: the least, and the median in brackets.
// `ways_benchmark [ranks] [rounds] [small]`
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/collectives/algorithms/ways.h"
#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/store/file_store.h"

namespace {

using namespace qx::collectives;

constexpr int64_t kLargestBytes = 64 << 20;
constexpr std::array kSizes = {int64_t{64} << 10, int64_t{256} << 10, int64_t{1} << 20,
                               int64_t{4} << 20,  int64_t{16} << 20,  kLargestBytes};
constexpr std::array kOperations = {Operation::kAllGather, Operation::kGather, Operation::kScatter,
                                    Operation::kAllToAll, Operation::kBroadcast};
struct Way {
  const char* name;
  int64_t peer_memory_bytes;
};
constexpr Way kWays[] = {{"rings", kNeverBytes}, {"system", 1}};

struct Rank {
  std::shared_ptr<Communicator> group;
  int world_size = 0;
  std::vector<float> input = std::vector<float>(kLargestBytes / 4, 1.0f), output = input;

  // `size_bytes` is the whole of the tensor.
  void run(Operation operation, int64_t size_bytes) {
    const int rank = group->options().rank;
    const auto part = [&](std::vector<float>& memory, int index) {
      const int64_t count = size_bytes / 4 / world_size;
      return Buffer{memory.data() + index * count, count, qx::DType::kFloat32};
    };
    const auto parts = [&](std::vector<float>& memory) {
      std::vector<Buffer> all;
      for (int r = 0; r < world_size; ++r) all.push_back(part(memory, r));
      return all;
    };
    const Buffer whole{input.data(), size_bytes / 4, qx::DType::kFloat32};
    WorkPtr work;
    switch (operation) {
      case Operation::kAllReduce: work = group->all_reduce(whole, {ReduceOp::kMax}); break;
      case Operation::kAllGather: work = group->all_gather(part(input, rank), parts(output)); break;
      case Operation::kGather:
        work = group->gather(part(input, rank), rank == 0 ? parts(output) : std::vector<Buffer>(), 0);
        break;
      case Operation::kScatter:
        work = group->scatter(rank == 0 ? parts(input) : std::vector<Buffer>(), part(output, rank), 0);
        break;
      case Operation::kAllToAll: work = group->all_to_all(parts(input), parts(output)); break;
      default: work = group->broadcast(whole, 0); break;
    }
    expect(work->wait());
  }

  double seconds(Operation operation, int64_t size_bytes, int num_calls) {
    expect(group->barrier()->wait());
    run(operation, size_bytes);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < num_calls; ++i) run(operation, size_bytes);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    double slowest = elapsed.count() / num_calls;
    expect(group->all_reduce({&slowest, 1, qx::DType::kFloat64}, {ReduceOp::kMax})->wait());
    return slowest;
  }

  static void expect(const qx::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    std::exit(1);
  }
};

void print(std::string_view name, std::vector<double>& samples) {
  std::sort(samples.begin(), samples.end());
  std::printf("  %s %.0f (%.0f)", std::string(name).c_str(), samples[0] * 1e6, samples[samples.size() / 2] * 1e6);
}

// 8 bytes, by groups that are alike but for the way of their calls.
void compare_small(Rank& rank, int num_rounds) {
  constexpr int kCalls = 50;
  constexpr const char* kCallWays[] = {"direct", "tree"};
  const auto world = rank.group;
  std::vector<int> all;
  for (int r = 0; r < rank.world_size; ++r) all.push_back(r);
  const int limits[] = {rank.world_size, 1};
  std::shared_ptr<Communicator> groups[2];
  for (size_t w = 0; w < 2; ++w) {
    forced_ways().largest_flat_group = limits[w];
    groups[w] = world->split(all, kCallWays[w]).value();
  }
  for (const Operation operation : {Operation::kAllReduce, Operation::kBroadcast, Operation::kAllGather}) {
    std::vector<double> samples[2];
    for (int i = 0; i < 2 * num_rounds; ++i) {
      const auto way = static_cast<size_t>((i + i / 2) % 2);
      forced_ways().largest_flat_group = limits[way];
      rank.group = groups[way];
      samples[way].push_back(rank.seconds(operation, int64_t{4} * rank.world_size, kCalls));
    }
    if (world->options().rank != 0) continue;
    std::printf("%-14s", std::string(operation_name(operation)).c_str());
    for (size_t w = 0; w < 2; ++w) print(kCallWays[w], samples[w]);
    std::printf("\n");
  }
  rank.group = world;
}

void compare(Rank& rank, Operation operation, int64_t size_bytes, int num_rounds) {
  const int num_calls = static_cast<int>(std::clamp<int64_t>((1 << 20) / size_bytes * 4, 1, 16));
  std::vector<double> samples[2];
  for (int round = 0; round < num_rounds; ++round) {
    for (int w = 0; w < 2; ++w) {
      const auto way = static_cast<size_t>((w + round) % 2);
      forced_ways().peer_memory_bytes = kWays[way].peer_memory_bytes;
      samples[way].push_back(rank.seconds(operation, size_bytes, num_calls));
    }
  }
  if (rank.group->options().rank != 0) return;
  std::printf("%-14s %6lld KiB", std::string(operation_name(operation)).c_str(),
              static_cast<long long>(size_bytes >> 10));
  for (size_t w = 0; w < 2; ++w) print(kWays[w].name, samples[w]);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int world_size = argc > 1 ? std::atoi(argv[1]) : 2;
  const int num_rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  std::string directory = (std::filesystem::temp_directory_path() / "qx-mccl-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return 1;
  int own = 0;
  for (int r = 1; r < world_size && own == 0; ++r) {
    if (fork() == 0) own = r;
  }
  Rank rank;
  rank.world_size = world_size;
  Options options;
  options.rank = own;
  options.world_size = world_size;
  rank.group = Communicator::create(options, *FileStore::open(directory)).value();
  const bool is_small = argc > 3;
  if (is_small) compare_small(rank, num_rounds);
  for (const int64_t size_bytes : kSizes) {
    if (is_small) break;
    for (const Operation operation : kOperations) compare(rank, operation, size_bytes, num_rounds);
  }
  if (own != 0) return 0;
  while (wait(nullptr) > 0) {
  }
  std::filesystem::remove_all(directory);
  return 0;
}
