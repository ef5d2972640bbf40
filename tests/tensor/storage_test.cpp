#include "quincunx/tensor/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "sanitizers.h"

namespace qx {
namespace {

using testing::HasSubstr;
using Shape = std::vector<int64_t>;

bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kStorageAlignmentBytes == 0; }

TEST(Storage, IsAlignedAndWritable) {
  for (const int64_t size : {1, 63, 64, 65, 4097}) {
    for (const bool huge_pages : {false, true}) {
      const auto storage = Storage::allocate(size, {.huge_pages = huge_pages}).value();
      EXPECT_TRUE(is_aligned(storage->data()));
      EXPECT_EQ(storage->size_bytes(), size);
      EXPECT_FALSE(storage->read_only());
      std::memset(storage->mutable_data(), 0x5a, static_cast<size_t>(size));
      EXPECT_EQ(storage->data()[size - 1], std::byte{0x5a});
    }
  }
}

TEST(Storage, IsZeroOnRequest) {
  for (int i = 0; i < 3; ++i) {
    const auto storage = Storage::allocate(1000, {.zero = true}).value();
    for (int64_t k = 0; k < 1000; ++k) ASSERT_EQ(storage->data()[k], std::byte{0});
    std::memset(storage->mutable_data(), 1, 1000);  // the next round may get these bytes
  }
}

TEST(Storage, CanBeEmpty) {
  const auto storage = Storage::allocate(0).value();
  EXPECT_EQ(storage->size_bytes(), 0);
  EXPECT_TRUE(storage->view(DType::kFloat32, Shape{0, 3}).ok());
  EXPECT_FALSE(storage->view(DType::kFloat32, Shape{1}).ok());
}

TEST(Storage, RefusesImpossibleSizes) {
  EXPECT_EQ(Storage::allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Storage::allocate(std::numeric_limits<int64_t>::max()).status().code(), StatusCode::kInvalidArgument);
}

TEST(Storage, ReportsThatMemoryIsExhausted) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "a sanitizer ends the program instead";
  const auto storage = Storage::allocate(int64_t{1} << 60);
  ASSERT_FALSE(storage.ok());
  EXPECT_EQ(storage.status().code(), StatusCode::kResourceExhausted);
}

TEST(Storage, GivesViewsWithinItsBounds) {
  const auto storage = Storage::allocate(96).value();
  const TensorView view = storage->view(DType::kFloat32, Shape{4, 5}, 16).value();
  EXPECT_EQ(view.data(), storage->data() + 16);
  EXPECT_THAT(storage->view(DType::kFloat32, Shape{4, 5}, 20).status().message(),
              HasSubstr("float32[4, 5] needs 80 bytes at offset 20, the storage has 96"));
  EXPECT_THAT(storage->view(DType::kFloat32, Shape{1}, 2).status().message(), HasSubstr("multiple of 4"));
  EXPECT_THAT(storage->view(DType::kFloat32, Shape{1}, -4).status().message(), HasSubstr("got -4"));
  EXPECT_THAT(storage->view(DType::kFloat32, Shape{1}, 100).status().message(), HasSubstr("got 100"));
}

TEST(Storage, TakesAFileWithoutACopy) {
  const std::string path = testing::TempDir() + "storage_test_" + std::to_string(::getpid());
  std::ofstream(path) << "abcdefgh";
  auto file = MappedFile::open(path).value();
  const std::byte* mapped = file.bytes().data();
  auto storage = Storage::from_file(std::move(file));
  ::unlink(path.c_str());
  EXPECT_EQ(storage->data(), mapped);
  EXPECT_TRUE(storage->read_only());
  EXPECT_EQ(storage->mutable_data(), nullptr);
  const TensorView view = storage->view(DType::kUInt8, Shape{2, 4}).value();
  EXPECT_EQ(view.data_as<char>()[7], 'h');
}

TEST(Storage, BorrowsBytesAsLongAsItLives) {
  auto owner = std::make_shared<std::vector<std::byte>>(8, std::byte{7});
  const std::weak_ptr<const void> watch = owner;
  auto storage = Storage::borrow(*owner, owner);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(storage->size_bytes(), 8);
  EXPECT_TRUE(storage->read_only());
  EXPECT_EQ(storage->mutable_data(), nullptr);
  EXPECT_EQ(storage->data()[7], std::byte{7});
  storage.reset();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace qx
