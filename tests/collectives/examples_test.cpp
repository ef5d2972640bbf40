// The example programs, started as their users start them: one process a rank.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/collectives/ranks.h"

namespace qx::collectives {
namespace {

using testing::Job;

// The standard output of rank r lands in `directory`/r.
void run_example(const char* program, const std::string& place, const std::string& directory) {
  testing::run_processes({.world_size = 3}, [&](const Job&, int rank) {
    const std::string number = std::to_string(rank), output = directory + "/" + number;
    testing::require(std::freopen(output.c_str(), "w", stdout) != nullptr, "no file for the output");
    execl(program, program, number.c_str(), "3", place.c_str(), nullptr);
    testing::require(false, std::string("cannot start ") + program);
  });
  for (int rank = 0; rank < 3; ++rank) {
    std::ifstream file(directory + "/" + std::to_string(rank));
    std::string line;
    std::getline(file, line);
    EXPECT_EQ(line, "rank " + std::to_string(rank) + ": the sum is 6");
  }
}

TEST(ExampleInC, SumsOverProcesses) {
  const testing::Directory directory;
  run_example(QX_EXAMPLE_C, "file://" + directory.path() + "/store", directory.path());
  run_example(QX_EXAMPLE_C, testing::free_address(), directory.path());
}

TEST(ExampleInCpp, SumsOverProcesses) {
  const testing::Directory directory;
  run_example(QX_EXAMPLE_CPP, directory.path() + "/store", directory.path());
}

}  // namespace
}  // namespace qx::collectives
