// How many descriptors a rank of a large group holds at any time, from before it starts to connect until a group of a
// part of it has worked. The system tells it exactly: it gives the lowest number that is free, and enlarges a process's
// table of descriptors, whose size it shows and never reduces, when none is.
#include <fstream>

#include "collectives/ranks.h"
#include "quincunx/collectives/store/open_store.h"

namespace qx::collectives::testing {
namespace {

constexpr int kRanks = 64;
constexpr int kMostDescriptors = 16;

int table_size() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int size = 0;
    if (word == "FDSize:" && status >> size) return size;
  }
  return 0;
}

int num_descriptors() {
  int count = -1;  // the directory itself is open
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Returns the size of the table, in which so many descriptors are left. The look at it takes one for a moment.
int fill_table(int left) {
  const int size = table_size();
  for (int count = num_descriptors(); count < size - left; ++count) require(dup(STDERR_FILENO) >= 0, "dup");
  require(table_size() == size, "the table grew while it was filled");
  return size;
}

TEST(Descriptors, OneMoreThanAreLeftIsSeen) {
  run_processes({1}, [](const Job&, int) {
    const int size = fill_table(kMostDescriptors);
    for (int i = 1; i < kMostDescriptors; ++i) require(dup(STDERR_FILENO) >= 0, "dup");
    require(table_size() == size, "the table grew too early");
    require(dup(STDERR_FILENO) >= 0, "dup");
    require(table_size() > size, "the table did not grow");
  });
}

void work_with_few(const Options& options, std::shared_ptr<Store> store) {
  const auto group = Communicator::create(options, std::move(store));
  require_ok(group.status());
  require_ok((*group)->barrier()->wait());
  const int connected = num_descriptors();
  std::vector<int> even;
  for (int rank = 0; rank < kRanks; rank += 2) even.push_back(rank);
  if (options.rank % 2 == 0) {
    const auto half = (*group)->split(even, "even");
    require_ok(half.status());
    require_ok((*half)->barrier()->wait());
    require(num_descriptors() <= connected, "a group has opened descriptors");
  }
  require_ok((*group)->barrier()->wait());
}

TEST(Descriptors, AreFewWithAStoreOfFiles) {
  run_processes({kRanks}, [](const Job& job, int rank) {
    const int size = fill_table(kMostDescriptors);
    work_with_few(options_of(job, rank), *FileStore::open(job.directory));
    require(table_size() == size, "rank " + std::to_string(rank) + " has opened too many");
  });
}

TEST(Descriptors, AreFewWithTheStoreOfRankZero) {
  const std::string address = free_address();
  run_processes({kRanks}, [&](const Job& job, int rank) {
    const int size = fill_table(kMostDescriptors);
    const Options options = options_of(job, rank);
    const auto store = open_store(address, options);
    require_ok(store.status());
    work_with_few(options, *store);
    require(table_size() == size, "rank " + std::to_string(rank) + " has opened too many");
  });
}

}  // namespace
}  // namespace qx::collectives::testing
