#include "quincunx/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace qx {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = testing::TempDir() + "mapped_file_test_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string file(const std::string& contents) {
    std::ofstream(folder + "/file", std::ios::binary) << contents;
    return folder + "/file";
  }
  static std::string_view text(const MappedFile& mapped) {
    return {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
  }

  std::string folder;
};

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  for (const size_t size : {1, 4095, 4096, 4097, 100000}) {
    std::string contents(size, 'x');
    contents.back() = 'y';
    const auto mapped = MappedFile::open(file(contents));
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(text(*mapped), contents);
    EXPECT_EQ(mapped->path(), folder + "/file");
  }
}

TEST_F(MappedFileTest, MapsAnEmptyFileToNoBytes) {
  const auto mapped = MappedFile::open(file(""));
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_TRUE(mapped->bytes().empty());
  EXPECT_TRUE(mapped->advise(FileAccess::kSequential).ok());
}

TEST_F(MappedFileTest, KeepsTheBytesWhenMovedAndWhenTheFileIsDeleted) {
  MappedFile first = MappedFile::open(file("contents")).value();
  MappedFile second = std::move(first);
  first = MappedFile::open(file("contents")).value();
  first = std::move(second);
  ::unlink((folder + "/file").c_str());
  EXPECT_EQ(text(first), "contents");
}

TEST_F(MappedFileTest, NamesWhatIsMissing) {
  const auto mapped = MappedFile::open(folder + "/nothing");
  EXPECT_EQ(mapped.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(mapped.status().message(), HasSubstr("path: cannot open \"" + folder + "/nothing\""));
  EXPECT_EQ(MappedFile::open(file("x") + "/below").status().code(), StatusCode::kNotFound);
}

TEST_F(MappedFileTest, RefusesWhatIsNoRegularFile) {
  EXPECT_THAT(MappedFile::open(folder).status().message(), HasSubstr("got the directory"));
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(MappedFile::open(folder + "/pipe").status().message(), HasSubstr("got the special file"));
  EXPECT_THAT(MappedFile::open("").status().message(), HasSubstr("empty string"));
  EXPECT_THAT(MappedFile::open(std::string("a\0b", 3)).status().message(), HasSubstr("zero byte"));
}

TEST_F(MappedFileTest, ReportsMissingPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const std::string path = file("secret");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  const auto mapped = MappedFile::open(path);
  EXPECT_EQ(mapped.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(mapped.status().message(), HasSubstr("Permission denied"));
}

TEST_F(MappedFileTest, TakesAdviceForRangesWithinTheFile) {
  const MappedFile mapped = MappedFile::open(file(std::string(10000, 'x'))).value();
  for (const FileAccess access : {FileAccess::kNormal, FileAccess::kSequential, FileAccess::kRandom,
                                  FileAccess::kWillNeed, FileAccess::kDontNeed}) {
    EXPECT_TRUE(mapped.advise(access).ok());
    EXPECT_TRUE(mapped.advise(access, 5000, 100).ok());
    EXPECT_TRUE(mapped.advise(access, 10000, 0).ok());
  }
  EXPECT_EQ(text(mapped), std::string(10000, 'x'));
  EXPECT_THAT(mapped.advise(FileAccess::kRandom, 9999, 2).message(), HasSubstr("got 9999, 2"));
  EXPECT_FALSE(mapped.advise(FileAccess::kRandom, -1, 1).ok());
  EXPECT_FALSE(mapped.advise(FileAccess::kRandom, 0, -1).ok());
}

}  // namespace
}  // namespace qx
