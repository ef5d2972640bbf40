// Sums an array over processes. Start it once for each rank, on one machine or with a directory that all machines see:
//
//   ./allreduce RANK WORLD_SIZE DIRECTORY
//
// For example, in a new directory:  for r in 0 1 2; do ./allreduce $r 3 "$PWD" & done; wait
#include <quincunx/collectives/communicator.h>
#include <quincunx/collectives/store/file_store.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace qx::collectives;

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s RANK WORLD_SIZE DIRECTORY\n", argv[0]);
    return 2;
  }
  Options options;
  options.rank = std::atoi(argv[1]);
  options.world_size = std::atoi(argv[2]);
  options.timeout = std::chrono::seconds(30);
  const auto store = FileStore::open(argv[3]);
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().to_string().c_str());
    return 1;
  }

  // Returns at once; connecting goes on in the background while the program prepares its data.
  const auto communicator = Communicator::create(options, *store);
  if (!communicator.ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().to_string().c_str());
    return 1;
  }
  std::vector<float> values(1000, static_cast<float>(options.rank + 1));

  const WorkPtr work = (*communicator)->all_reduce({values.data(), 1000, qx::DType::kFloat32}, {ReduceOp::kSum});
  const qx::Status status = work->wait();
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, status.to_string().c_str());
    return 1;
  }
  std::printf("rank %d: the sum is %g\n", options.rank, values[0]);
  return 0;
}
