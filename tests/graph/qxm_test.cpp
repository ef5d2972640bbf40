#include "quincunx/graph/qxm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>

#include "graph/graphs.h"

namespace qx::graph {
namespace {

using testing::HasSubstr;

// Where the header's fields lie; the table follows at 64.
constexpr size_t kMajorOffset = 8;
constexpr size_t kMinorOffset = 12;
constexpr size_t kNumSectionsOffset = 24;
constexpr size_t kChecksumOffset = 28;
constexpr size_t kTableOffset = 64;
constexpr size_t kEntryBytes = 32;

class QxmTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "qxm_test_" + std::to_string(::getpid());
    std::filesystem::create_directory(directory_);
    path_ = directory_ + "/model.qxm";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string read(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t num_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  std::string directory_;
  std::string path_;
};

Qxm two_methods() {
  Graph prefill = small_graph();
  prefill.name = "prefill";
  Graph decode = prefill;
  decode.name = "decode";
  decode.nodes[1].arguments = {TensorRef{2}};
  return {.methods = {prefill, decode}, .metadata = R"({"model": "small"})", .tokenizer = std::string("\0tok", 4)};
}

// Every kind of argument, with its extremes.
Graph graph_of_all_arguments() {
  Graph graph = small_graph();
  graph.nodes[1].op = "qx.anything";
  graph.nodes[1].arguments = {std::monostate{},
                              TensorRef{2},
                              std::vector<TensorRef>{{2}, {}},
                              true,
                              Dim{.value = INT64_MIN, .multiplier = -3, .symbol = 0},
                              -std::numeric_limits<double>::infinity(),
                              std::string("tanh\0x", 6),
                              DType::kFloat8E8M0FNU,
                              std::vector<Dim>{{1}, {.value = 2, .multiplier = 1, .symbol = 0}},
                              std::vector<double>{0.5, 1e300},
                              std::vector<bool>{true, false}};
  return graph;
}

Result<Qxm> parse(const std::string& bytes) {
  auto storage = Storage::allocate(static_cast<int64_t>(bytes.size())).value();
  if (!bytes.empty()) std::memcpy(storage->mutable_data(), bytes.data(), bytes.size());
  return parse_qxm(std::move(storage), "bytes");
}

template <typename T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

template <typename T>
T get(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Bit by bit, from the polynomial's definition.
uint32_t crc32(const std::string& bytes) {
  uint32_t remainder = ~uint32_t{0};
  for (const char byte : bytes) {
    remainder ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~remainder;
}

// As a writer that means what it says.
void sign(std::string& bytes) {
  put<uint32_t>(bytes, kChecksumOffset, 0);
  const size_t size = kTableOffset + kEntryBytes * get<uint32_t>(bytes, kNumSectionsOffset);
  put(bytes, kChecksumOffset, crc32(bytes.substr(0, size)));
}

TEST_F(QxmTest, GivesBackWhatWasWritten) {
  const Qxm written = two_methods();
  ASSERT_TRUE(write_qxm(path_, written).ok());
  const Qxm read = open_qxm(path_).value();
  EXPECT_EQ(read.metadata, written.metadata);
  EXPECT_EQ(read.tokenizer, written.tokenizer);
  ASSERT_EQ(read.methods.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(to_text(read.methods[i]), to_text(written.methods[i]));
  EXPECT_EQ(read.find("decode"), &read.methods[1]);
  EXPECT_EQ(read.find("denoise"), nullptr);
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(QxmTest, GivesBackEveryKindOfArgument) {
  const Graph graph = graph_of_all_arguments();
  ASSERT_TRUE(write_qxm(path_, {.methods = {graph}, .metadata = "{}", .tokenizer = ""}).ok());
  EXPECT_EQ(open_qxm(path_)->methods[0].nodes[1].arguments, graph.nodes[1].arguments);
}

TEST_F(QxmTest, MapsWeightsAlignedAndOnce) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const Qxm read = open_qxm(path_).value();
  for (const Graph& graph : read.methods) {
    for (const Constant& constant : graph.constants) {
      const auto address = reinterpret_cast<uintptr_t>(constant.storage->data() + constant.offset_bytes);
      EXPECT_EQ(address % kStorageAlignmentBytes, 0u);
      EXPECT_TRUE(constant.storage->read_only());
      EXPECT_EQ(constant.storage, read.methods[0].constants[0].storage);
    }
    const Constant& weight = graph.constants[static_cast<size_t>(graph.values[1].constant)];
    EXPECT_EQ(weight.offset_bytes, read.methods[0].constants[0].offset_bytes);
    const std::vector<float> expected = {1, 2, 3, 4, 5, 6};
    EXPECT_EQ(std::memcmp(weight.storage->data() + weight.offset_bytes, expected.data(), 6 * sizeof(float)), 0);
  }
}

TEST_F(QxmTest, WritesAnOpenedModelAgainBitForBit) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const std::string before = read(path_);
  ASSERT_TRUE(write_qxm(path_, open_qxm(path_).value()).ok());
  EXPECT_EQ(read(path_), before);
}

TEST_F(QxmTest, WeightsStayAfterTheFileIsReplaced) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const Qxm model = open_qxm(path_).value();
  ASSERT_TRUE(write_qxm(path_, Qxm{}).ok());
  const Constant& weight = model.methods[0].constants[0];
  EXPECT_EQ(get<float>(std::string(reinterpret_cast<const char*>(weight.storage->data() + weight.offset_bytes), 4), 0),
            1.0f);
}

TEST_F(QxmTest, HoldsNothing) {
  ASSERT_TRUE(write_qxm(path_, Qxm{}).ok());
  EXPECT_TRUE(open_qxm(path_)->methods.empty());
}

TEST_F(QxmTest, RefusesToWriteWhatNobodyCouldRead) {
  Qxm twice = two_methods();
  twice.methods[1].name = "prefill";
  EXPECT_THAT(write_qxm(path_, twice).message(), HasSubstr("methods: expected different names, got \"prefill\" twice"));
  Qxm unnamed = two_methods();
  unnamed.methods[0].name.clear();
  EXPECT_THAT(write_qxm(path_, unnamed).message(), HasSubstr("methods: expected graphs with names"));
  Qxm broken = two_methods();
  broken.methods[0].outputs = {77};
  EXPECT_THAT(write_qxm(path_, broken).message(), HasSubstr("outputs: expected values below 6, got 77"));
  Qxm text = two_methods();
  text.metadata = "[1]";
  EXPECT_THAT(write_qxm(path_, text).message(), HasSubstr("metadata: expected a JSON object, got [1]"));
  EXPECT_THAT(write_qxm("", two_methods()).message(), HasSubstr("path: expected the name of a file"));
  EXPECT_EQ(num_files(), 0u);
}

TEST_F(QxmTest, NamesAFolderThatIsMissing) {
  const Status status = write_qxm(directory_ + "/no/model.qxm", two_methods());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/no/model.qxm\": No such file"));
  EXPECT_EQ(write_qxm(directory_, two_methods()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(open_qxm(directory_ + "/no.qxm").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(num_files(), 0u);
}

// The limit of a file's size stands for the disk's end: the write fails half way.
TEST_F(QxmTest, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const std::string before = read(path_);
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const struct rlimit small{.rlim_cur = 512, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_qxm(path_, two_methods());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read(path_), before);
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(QxmTest, NoticesEveryTruncation) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const std::string bytes = read(path_);
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_EQ(parse(bytes.substr(0, size)).status().code(), StatusCode::kDataLoss) << size;
  }
  EXPECT_EQ(parse(bytes + "x").status().code(), StatusCode::kDataLoss);
}

TEST_F(QxmTest, NoticesEveryFlippedBit) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const std::string bytes = read(path_);
  int padding = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += 3) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const Result<Qxm> result = parse(damaged);
    if (result.ok()) {
      ++padding;
      continue;
    }
    const bool version = bit / 8 >= kMajorOffset && bit / 8 < kMajorOffset + 4;
    ASSERT_TRUE(result.status().code() == StatusCode::kDataLoss || version) << result.status();
  }
  // Between sections there are up to 63 bytes that nobody reads.
  EXPECT_LT(padding, 4 * 64 * 8 / 3);
}

TEST_F(QxmTest, LeavesWeightsUncheckedOnRequest) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  std::string bytes = read(path_);
  bytes[bytes.size() - 128] ^= 1;
  std::ofstream(path_, std::ios::binary) << bytes;
  EXPECT_THAT(open_qxm(path_).status().message(), HasSubstr("checksum of section \"weights\""));
  EXPECT_TRUE(open_qxm(path_, {.check_weights = false}).ok());
}

TEST_F(QxmTest, RefusesANewerMajorVersion) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  std::string bytes = read(path_);
  put<uint32_t>(bytes, kMajorOffset, 2);
  sign(bytes);
  const Status status = parse(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("is of format version 2.0, this library reads up to version 1"));
}

TEST_F(QxmTest, ReadsANewerMinorVersion) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  std::string bytes = read(path_);
  put<uint32_t>(bytes, kMinorOffset, 9);
  sign(bytes);
  EXPECT_TRUE(parse(bytes).ok());
}

// The entry of the tokenizer stands third; a section of another kind takes its place.
TEST_F(QxmTest, RefusesAnUnknownSectionThatIsRequired) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  std::string bytes = read(path_);
  put<uint32_t>(bytes, kTableOffset + 2 * kEntryBytes, 99);
  sign(bytes);
  EXPECT_EQ(parse(bytes).status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(parse(bytes).status().message(), HasSubstr("needs section \"unknown 99\""));
  put<uint32_t>(bytes, kTableOffset + 2 * kEntryBytes + 4, 0);
  sign(bytes);
  EXPECT_THAT(parse(bytes).status().message(), HasSubstr("has no section \"tokenizer\""));
}

TEST_F(QxmTest, RefusesSectionsOutsideTheFile) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const std::string bytes = read(path_);
  for (const uint64_t value : {uint64_t{0}, uint64_t{63}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{63}}) {
    for (const size_t field : {8, 16}) {  // offset, size
      std::string hostile = bytes;
      put(hostile, kTableOffset + kEntryBytes + field, value);
      sign(hostile);
      EXPECT_EQ(parse(hostile).status().code(), StatusCode::kDataLoss) << value << " at " << field;
    }
  }
}

TEST_F(QxmTest, DescribesItsSections) {
  ASSERT_TRUE(write_qxm(path_, two_methods()).ok());
  const auto storage = Storage::from_file(MappedFile::open(path_).value());
  const QxmLayout layout = qxm_layout(*storage, path_).value();
  EXPECT_EQ(layout.major, 1u);
  EXPECT_EQ(layout.file_bytes, storage->size_bytes());
  std::vector<std::string> names;
  for (const QxmSection& section : layout.sections) names.push_back(section.name);
  EXPECT_THAT(names, testing::ElementsAre("metadata", "methods", "tokenizer", "weights"));
  EXPECT_EQ(layout.sections[3].size_bytes, 128);
}

}  // namespace
}  // namespace qx::graph
