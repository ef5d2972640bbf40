#include "quincunx/base/cpu_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace qx {
namespace {

class CgroupQuota : public testing::Test {
 protected:
  void SetUp() override {
    root = testing::TempDir() + "cpu_count_test_" + std::to_string(::getpid());
    std::filesystem::create_directories(root);
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> quota() { return cgroup_cpu_quota(root + "/self", root); }

  std::string root;
};

TEST_F(CgroupQuota, TakesTheTightestLimitOnTheWayUp) {
  write("/self", "0::/box/inner\n");
  write("/box/inner/cpu.max", "300000 100000\n");
  write("/box/cpu.max", "150000 100000\n");
  write("/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CgroupQuota, FindsTheRootsOwnLimit) {
  write("/self", "0::/\n");
  write("/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CgroupQuota, ReadsVersionOne) {
  write("/self", "5:memory:/m\n4:cpu,cpuacct:/docker/ab\n");
  write("/cpu/docker/ab/cpu.cfs_quota_us", "250000\n");
  write("/cpu/docker/ab/cpu.cfs_period_us", "100000\n");
  write("/cpu/cpu.cfs_quota_us", "-1\n");
  write("/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupQuota, IsUnlimitedWithoutFilesOrWithStrangeOnes) {
  EXPECT_EQ(quota(), std::nullopt);
  write("/self", "0::/box\nno colon\n1:two\n");
  EXPECT_EQ(quota(), std::nullopt);
  for (const char* text : {"max 100000", "", "-5 100000", "100000 0", "100000", "much"}) {
    write("/box/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

TEST(AvailableCpus, LieBetweenOneAndTheMachines) {
  EXPECT_GE(num_available_cpus(), 1);
  EXPECT_LE(num_available_cpus(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace qx
