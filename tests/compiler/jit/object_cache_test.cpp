#include "quincunx/compiler/jit/object_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace qx::compiler {
namespace {
namespace fs = std::filesystem;

class ObjectCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "qx-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path + "/kernels";
  }
  void TearDown() override { fs::remove_all(fs::path(directory_).parent_path()); }

  static std::vector<std::byte> bytes(size_t size, int seed) {
    std::vector<std::byte> result(size);
    for (size_t i = 0; i < size; ++i) result[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(seed));
    return result;
  }

  std::string directory_;
};

TEST_F(ObjectCacheTest, GivesBackWhatWasStored) {
  const ObjectCache cache(directory_);
  EXPECT_EQ(cache.load("a").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(cache.store("a", bytes(1000, 1)).ok());
  const auto loaded = ObjectCache(directory_).load("a");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, bytes(1000, 1));
}

TEST_F(ObjectCacheTest, DetectsDamageAndForeignKeys) {
  const ObjectCache cache(directory_);
  const std::string path = directory_ + "/a.qxo";
  for (const int64_t position : {0, 20, 60, 500}) {
    ASSERT_TRUE(cache.store("a", bytes(1000, 1)).ok());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(position);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(position);
    file.put(byte);
    file.close();
    EXPECT_EQ(cache.load("a").status().code(), StatusCode::kDataLoss) << position;
    EXPECT_EQ(cache.load("a").status().code(), StatusCode::kNotFound) << "the damaged file was deleted";
  }
  ASSERT_TRUE(cache.store("a", bytes(1000, 1)).ok());
  fs::resize_file(path, 500);
  EXPECT_EQ(cache.load("a").status().code(), StatusCode::kDataLoss);
  ASSERT_TRUE(cache.store("a", bytes(1000, 1)).ok());
  fs::rename(path, directory_ + "/b.qxo");
  EXPECT_EQ(cache.load("b").status().code(), StatusCode::kDataLoss);
}

TEST_F(ObjectCacheTest, StaysWithinItsLimitByDroppingTheOldest) {
  const ObjectCache cache(directory_, 10000);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(cache.store("key" + std::to_string(i), bytes(1000, i)).ok());
    std::error_code error;
    fs::last_write_time(directory_ + "/key" + std::to_string(i) + ".qxo",
                        fs::file_time_type::clock::now() + std::chrono::seconds(i - 100), error);
  }
  int64_t total = 0;
  for (const auto& file : fs::directory_iterator(directory_)) total += static_cast<int64_t>(file.file_size());
  EXPECT_LE(total, 10000);
  EXPECT_FALSE(cache.load("key0").ok());
  EXPECT_TRUE(cache.load("key19").ok());
}

TEST_F(ObjectCacheTest, SurvivesWritersAtOnce) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      const ObjectCache cache(directory_);
      for (int round = 0; round < 20; ++round) EXPECT_TRUE(cache.store("same", bytes(5000, 9)).ok());
    });
  }
  for (int round = 0; round < 200; ++round) {
    const auto loaded = ObjectCache(directory_).load("same");
    if (loaded.ok()) EXPECT_EQ(*loaded, bytes(5000, 9));
    EXPECT_NE(loaded.status().code(), StatusCode::kDataLoss);
  }
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(ObjectCacheTest, RefusesAFolderThatOthersMayWriteTo) {
  fs::create_directories(directory_);
  ::chmod(directory_.c_str(), 0777);
  EXPECT_EQ(ObjectCache(directory_).load("a").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ObjectCache(directory_).store("a", bytes(10, 0)).code(), StatusCode::kFailedPrecondition);
}

TEST(CacheDirectory, FollowsTheEnvironment) {
  ::setenv("QX_CACHE_DIR", "/somewhere/kernels", 1);
  EXPECT_EQ(cacheDirectory(""), "/somewhere/kernels");
  EXPECT_EQ(cacheDirectory("/else"), "/else");
  EXPECT_EQ(cacheDirectory("none"), "");
  ::unsetenv("QX_CACHE_DIR");
  ::setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(cacheDirectory(""), "/xdg/quincunx");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/someone", 1);
  EXPECT_EQ(cacheDirectory(""), "/someone/.cache/quincunx");
}

}  // namespace
}  // namespace qx::compiler
