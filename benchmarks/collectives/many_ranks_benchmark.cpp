// More ranks than cores: all_reduce of 8 bytes, every rank a process that measures the same calls.
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/store/file_store.h"

namespace {

using namespace qx::collectives;
using Clock = std::chrono::steady_clock;

constexpr int kSamples = 9, kCalls = 500;

std::shared_ptr<Communicator> connect(int rank, int world_size, const std::string& directory) {
  Options options;
  options.rank = rank;
  options.world_size = world_size;
  return Communicator::create(options, *FileStore::open(directory)).value();
}

// The median time of a call in s.
double measure(Communicator& group) {
  std::vector<double> seconds;
  for (int sample = 0; sample < kSamples; ++sample) {
    double values[] = {1.0};
    static_cast<void>(group.barrier()->wait());
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kCalls; ++i) {
      if (!group.all_reduce({values, 1, qx::DType::kFloat64}, {ReduceOp::kMax})->wait().ok()) std::exit(1);
    }
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / kCalls);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kSamples / 2, seconds.end());
  return seconds[kSamples / 2];
}

void BM_ManyRanks(benchmark::State& state) {
  const auto world_size = static_cast<int>(state.range(0));
  for (auto _ : state) {
    std::string directory = (std::filesystem::temp_directory_path() / "qx-mccl-XXXXXX").string();
    if (mkdtemp(directory.data()) == nullptr) std::exit(1);
    std::vector<pid_t> others;
    for (int rank = 1; rank < world_size; ++rank) {
      others.push_back(fork());
      if (others.back() != 0) continue;
      static_cast<void>(measure(*connect(rank, world_size, directory)));
      _exit(0);
    }
    state.SetIterationTime(measure(*connect(0, world_size, directory)));
    for (const pid_t pid : others) waitpid(pid, nullptr, 0);
    std::filesystem::remove_all(directory);
  }
}
BENCHMARK(BM_ManyRanks)->Arg(2)->Arg(4)->Arg(8)->ArgName("ranks")->UseManualTime()->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
