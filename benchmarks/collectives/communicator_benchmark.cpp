// Two ranks as two processes: latency of 8 bytes, bandwidth of 1 and 64 MiB. The peer repeats what the measuring rank
// does until it is told to stop.
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/store/file_store.h"

namespace {

using namespace qx::collectives;

constexpr int64_t kLargestBytes = 64 << 20;
enum Kind : int64_t { kStop, kAllReduce, kAllGather, kReduceScatter, kBroadcast };

struct Rank {
  std::shared_ptr<Communicator> group;
  std::vector<float> input = std::vector<float>(kLargestBytes / 4, 1.0f), output = input;

  // `size_bytes` is the whole of the tensor, as in nccl-tests.
  void run(int64_t kind, int64_t size_bytes) {
    const auto buffer = [&](std::vector<float>& memory, int part, int num_parts) {
      const int64_t count = size_bytes / 4 / num_parts;
      return Buffer{memory.data() + part * count, count, qx::DType::kFloat32};
    };
    const int rank = group->options().rank;
    WorkPtr work;
    switch (kind) {
      case kAllReduce: work = group->all_reduce(buffer(input, 0, 1), {ReduceOp::kMax}); break;
      case kAllGather:
        work = group->all_gather(buffer(input, rank, 2), {buffer(output, 0, 2), buffer(output, 1, 2)});
        break;
      case kReduceScatter:
        work = group->reduce_scatter({buffer(input, 0, 2), buffer(input, 1, 2)}, buffer(output, rank, 2), {});
        break;
      default: work = group->broadcast(buffer(input, 0, 1), 0); break;
    }
    const qx::Status status = work->wait();
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.to_string().c_str());
      std::exit(1);
    }
  }

  // What the other rank is to do next, and how often.
  void tell(int64_t kind, int64_t size_bytes, int64_t rounds) {
    int64_t order[3] = {kind, size_bytes, rounds};
    const auto work = group->broadcast({order, 3, qx::DType::kInt64}, 0);
    if (!work->wait().ok()) std::exit(1);
  }

  void follow() {
    while (true) {
      int64_t order[3] = {};
      if (!group->broadcast({order, 3, qx::DType::kInt64}, 0)->wait().ok() || order[0] == kStop) return;
      for (int64_t i = 0; i < order[2]; ++i) run(order[0], order[1]);
    }
  }
};

Rank* measuring = nullptr;

std::shared_ptr<Communicator> connect(int rank, bool shared_memory, const std::string& directory) {
  Options options;
  options.rank = rank;
  options.world_size = 2;
  options.allow_shared_memory = shared_memory;
  return Communicator::create(options, *FileStore::open(directory)).value();
}

void BM_Collective(benchmark::State& state) {
  constexpr int64_t kBatch = 16;
  const int64_t size_bytes = state.range(1);
  const int64_t rounds = size_bytes >= (1 << 20) ? 1 : kBatch;
  for (auto _ : state) {
    state.PauseTiming();
    measuring->tell(state.range(0), size_bytes, rounds);
    state.ResumeTiming();
    for (int64_t i = 0; i < rounds; ++i) measuring->run(state.range(0), size_bytes);
  }
  state.SetItemsProcessed(state.iterations() * rounds);
  state.SetBytesProcessed(state.iterations() * rounds * size_bytes);
}
BENCHMARK(BM_Collective)
    ->ArgsProduct({{kAllReduce, kAllGather, kReduceScatter, kBroadcast}, {8, 1 << 20, kLargestBytes}})
    ->ArgNames({"op(1=all_reduce,2=all_gather,3=reduce_scatter,4=broadcast)", "bytes"})
    ->UseRealTime();

// Many calls a sample: what the ranks tell each other before it weighs little.
void BM_Latency(benchmark::State& state) {
  constexpr int64_t kCalls = 2000;
  for (auto _ : state) {
    measuring->tell(kAllReduce, 8, kCalls);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < kCalls; ++i) measuring->run(kAllReduce, 8);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(elapsed.count());
    state.counters["s_per_call"] = elapsed.count() / kCalls;
  }
}
BENCHMARK(BM_Latency)->UseManualTime()->Iterations(3);

}  // namespace

// QX_MCCL_BENCHMARK_TCP=1 measures TCP instead of shared memory.
int main(int argc, char** argv) {
  std::string directory = (std::filesystem::temp_directory_path() / "qx-mccl-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const bool shared_memory = std::getenv("QX_MCCL_BENCHMARK_TCP") == nullptr;
  const pid_t peer = fork();
  Rank rank;
  rank.group = connect(peer == 0 ? 1 : 0, shared_memory, directory);
  if (peer == 0) {
    rank.follow();
    return 0;
  }
  measuring = &rank;
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  rank.tell(kStop, 0, 0);
  waitpid(peer, nullptr, 0);
  std::filesystem::remove_all(directory);
  return 0;
}
