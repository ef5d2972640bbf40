// The C interface: jobs of real processes, and every argument that can be wrong.
#include "quincunx/collectives/quincunx_mccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/collectives/ranks.h"

namespace qx::collectives {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using testing::require;

void must(qx_status status) { require(status == QX_OK, std::string("expected QX_OK: ") + qx_last_error()); }

qx_communicator_options options_for(int rank, int world_size, const char* address) {
  qx_communicator_options options = {};
  options.struct_size = sizeof(options);
  options.rank = rank;
  options.world_size = world_size;
  options.address = address;
  options.timeout_ms = 20000;
  return options;
}

qx_communicator* create(int rank, int world_size, const std::string& address) {
  const qx_communicator_options options = options_for(rank, world_size, address.c_str());
  qx_communicator* group = nullptr;
  must(qx_communicator_create(&options, &group));
  return group;
}

template <typename T>
qx_buffer buffer_of(std::vector<T>& values, qx_dtype dtype) {
  return {values.data(), static_cast<int64_t>(values.size()), dtype};
}

// Ranks contribute small whole numbers: the sums are exact.
void run_all_operations(qx_communicator* group, int rank, int size) {
  std::vector<float> sum{float(rank), 1.0f};
  const qx_buffer in_place = buffer_of(sum, QX_FLOAT32);
  must(qx_all_reduce(group, &in_place, nullptr, 0, nullptr));
  require(sum == std::vector<float>{float(size * (size - 1) / 2), float(size)}, "all_reduce");

  std::vector<int32_t> own{rank + 1}, most{0};
  const qx_buffer input = buffer_of(own, QX_INT32), output = buffer_of(most, QX_INT32);
  const qx_reduction max = {QX_MAX, 0};
  must(qx_reduce(group, &input, rank == 1 ? &output : nullptr, 1, &max, 0, nullptr));
  require(most[0] == (rank == 1 ? size : 0), "reduce");

  std::vector<int32_t> told{rank == 2 ? 7 : 0};
  const qx_buffer message = buffer_of(told, QX_INT32);
  must(qx_broadcast(group, &message, 2, 0, nullptr));
  require(told[0] == 7, "broadcast");

  std::vector<int32_t> all(static_cast<size_t>(size), -1), expected(all.size());
  std::iota(expected.begin(), expected.end(), 1);
  std::vector<qx_buffer> parts;
  for (int32_t& part : all) parts.push_back({&part, 1, QX_INT32});
  must(qx_all_gather(group, &input, parts.data(), size, 0, nullptr));
  require(all == expected, "all_gather");
  std::fill(all.begin(), all.end(), -1);
  must(qx_gather(group, &input, parts.data(), rank == 0 ? size : 0, 0, 0, nullptr));
  require(rank != 0 || all == expected, "gather");
  if (rank == 0) std::reverse(all.begin(), all.end());
  must(qx_scatter(group, parts.data(), rank == 0 ? size : 0, &output, 0, 0, nullptr));
  require(most[0] == size - rank, "scatter");

  std::vector<int32_t> ones(all.size(), rank), result{0};
  std::vector<qx_buffer> slices;
  for (int32_t& slice : ones) slices.push_back({&slice, 1, QX_INT32});
  const qx_buffer slice = buffer_of(result, QX_INT32);
  must(qx_reduce_scatter(group, slices.data(), size, &slice, nullptr, 0, nullptr));
  require(result[0] == size * (size - 1) / 2, "reduce_scatter");
  must(qx_all_to_all(group, slices.data(), parts.data(), size, 0, nullptr));
  std::iota(expected.begin(), expected.end(), 0);
  require(all == expected, "all_to_all");
  must(qx_barrier(group, 0, nullptr));
}

void send_round(qx_communicator* group, int rank, int size) {
  std::vector<double> out{rank + 0.5}, in{-1};
  const qx_buffer sent = buffer_of(out, QX_FLOAT64), received = buffer_of(in, QX_FLOAT64);
  qx_work* receive = nullptr;
  must(qx_recv(group, &received, -1, 5, 0, &receive));
  must(qx_send(group, &sent, (rank + 1) % size, 5, 0, nullptr));
  must(qx_work_wait(receive, 0));
  int32_t is_done = 0;
  must(qx_work_test(receive, &is_done));
  const int source = (rank + size - 1) % size;
  require(is_done == 1 && in[0] == source + 0.5 && qx_work_source_rank(receive) == source, "send and recv");
  qx_work_free(receive);
}

TEST(CInterfaceOfMccl, KeepsRanksOfDifferentHostIdsApart) {
  const std::string address = testing::free_address();
  testing::run_processes({.world_size = 3}, [&](const Job&, int rank) {
    qx_communicator_options options = options_for(rank, 3, address.c_str());
    options.host_id = rank == 2 ? "b" : "a";
    qx_communicator* group = nullptr;
    must(qx_communicator_create(&options, &group));
    // More than travels with the calls.
    std::vector<double> values(40000, rank);
    const qx_buffer buffer = buffer_of(values, QX_FLOAT64);
    must(qx_all_reduce(group, &buffer, nullptr, 0, nullptr));
    require(values.front() == 3 && values.back() == 3, "sum");
    char* text = nullptr;
    must(qx_communicator_statistics(group, &text));
    const std::string shared = rank == 2 ? "0" : "1";
    require(std::strstr(text, ("\"shared_memory_peers\": " + shared).c_str()) != nullptr, text);
    qx_text_free(text);
    must(qx_barrier(group, 0, nullptr));
    qx_communicator_destroy(group);
  });
}

TEST(CInterfaceOfMccl, CarriesEveryOperationBetweenProcesses) {
  const std::string address = testing::free_address();
  testing::run_processes({.world_size = 3}, [&](const Job& job, int rank) {
    for (const std::string& place : {address, "file://" + job.directory}) {
      qx_communicator* group = create(rank, 3, place);
      must(qx_communicator_wait_ready(group, 0));
      require(qx_communicator_ready(group) == 1 && qx_communicator_rank(group) == rank, "ready");
      run_all_operations(group, rank, 3);
      send_round(group, rank, 3);
      qx_phase phase = QX_CONNECTING;
      uint8_t is_seen[3] = {};
      must(qx_communicator_progress(group, &phase, is_seen, 3));
      require(phase == QX_READY && is_seen[0] + is_seen[1] + is_seen[2] == 3, "progress");
      qx_communicator_destroy(group);
    }
  });
}

TEST(CInterfaceOfMccl, SplitsAllocatesAndReports) {
  testing::run_processes({.world_size = 3}, [&](const Job& job, int rank) {
    qx_communicator* world = create(rank, 3, "file://" + job.directory);
    qx_memory* memory = nullptr;
    must(qx_communicator_allocate(world, 1 << 20, &memory));
    auto* values = static_cast<int64_t*>(qx_memory_data(memory));
    std::fill_n(values, (1 << 20) / 8, rank);
    if (rank != 0) {
      const int32_t members[] = {2, 1};
      qx_communicator* pair = nullptr;
      must(qx_communicator_split(world, members, 2, "pair", &pair));
      require(qx_communicator_rank(pair) == 2 - rank && qx_communicator_world_size(pair) == 2, "split");
      const qx_buffer buffer = {values, (1 << 20) / 8, QX_INT64};
      must(qx_all_reduce(pair, &buffer, nullptr, 0, nullptr));
      require(values[0] == 3 && values[(1 << 20) / 8 - 1] == 3, "sum of the pair");
      qx_communicator_destroy(pair);
    }
    must(qx_barrier(world, 0, nullptr));
    char* text = nullptr;
    must(qx_communicator_statistics(world, &text));
    require(std::strstr(text, "\"barrier\": {\"calls\": 1") != nullptr, text);
    qx_text_free(text);
    must(qx_flight_records(QX_FLIGHT_CHROME_TRACE, &text));
    require(std::strstr(text, "traceEvents") != nullptr, text);
    qx_text_free(text);
    const std::string path = job.directory + "/flight." + std::to_string(rank);
    must(qx_write_flight_records(path.c_str(), QX_FLIGHT_JSON));
    require(std::filesystem::file_size(path) > 0, "the file of the flight recorder");
    qx_communicator_destroy(world);
    values[0] = 1;  // the memory outlives its communicator
    qx_memory_free(memory);
  });
}

TEST(CInterfaceOfMccl, TellsWhichRankIsLateAndGoesOnAfterAbort) {
  testing::run_processes({.world_size = 2}, [&](const Job& job, int rank) {
    qx_communicator* group = create(rank, 2, "file://" + job.directory);
    must(qx_barrier(group, 0, nullptr));
    if (rank == 1) std::this_thread::sleep_for(testing::milliseconds(600));
    qx_work* work = nullptr;
    if (rank == 0) {
      must(qx_barrier(group, 200, &work));
      std::atomic<int> told{-1};
      must(qx_work_on_completion(
          work, [](qx_status status, void* context) { static_cast<std::atomic<int>*>(context)->store(status); },
          &told));
      require(qx_work_wait(work, 0) == QX_DEADLINE_EXCEEDED, "the barrier ends");
      require(std::strstr(qx_last_error(), "rank 1") != nullptr, qx_last_error());
      for (int i = 0; i < 2000 && told < 0; ++i) std::this_thread::sleep_for(testing::milliseconds(1));
      require(told == QX_DEADLINE_EXCEEDED, "the callback is told");
      qx_work_free(work);
    } else {
      must(qx_communicator_abort(group, "the test says so"));
      require(qx_barrier(group, 0, &work) != QX_OK && work == nullptr, "an aborted group refuses");
      qx_phase phase = QX_READY;
      must(qx_communicator_progress(group, &phase, nullptr, 0));
      require(phase == QX_WAS_ABORTED || phase == QX_FAILED, "the phase tells");
    }
    qx_communicator_destroy(group);
  });
}

TEST(CInterfaceOfMccl, ShutsOutRanksWithAnotherSecret) {
  testing::run_processes({.world_size = 2, .shared_memory = false}, [&](const Job& job, int rank) {
    const std::string address = "file://" + job.directory;
    qx_communicator_options options = options_for(rank, 2, address.c_str());
    options.forbid_shared_memory = 1;
    options.secret = rank == 0 ? "sixteen bytes or more" : "sixteen bytes or less";
    qx_communicator* group = nullptr;
    must(qx_communicator_create(&options, &group));
    require(qx_barrier(group, 1500, nullptr) == QX_DEADLINE_EXCEEDED, "another secret is refused");
    qx_communicator_destroy(group);
  });
}

TEST(CInterfaceOfMccl, EndsAtOnceWhereNobodyCame) {
  const auto started = std::chrono::steady_clock::now();
  qx_communicator* group = create(1, 2, testing::free_address());
  EXPECT_EQ(qx_communicator_ready(group), 0);
  EXPECT_EQ(qx_communicator_wait_ready(group, 50), QX_DEADLINE_EXCEEDED);
  EXPECT_THAT(qx_last_error(), HasSubstr("rank 0"));
  qx_communicator_destroy(group);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(10));
}

// A group of one, and what each function says to what is wrong.
class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    qx_communicator_options options = {};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    ASSERT_EQ(qx_communicator_create(&options, &group_), QX_OK) << qx_last_error();
  }
  void TearDown() override { qx_communicator_destroy(group_); }
  static void expect(qx_status status, qx_status expected, const char* text) {
    EXPECT_EQ(status, expected) << qx_last_error();
    EXPECT_THAT(qx_last_error(), HasSubstr(text));
  }
  static void refused(qx_status status, const char* text) { expect(status, QX_INVALID_ARGUMENT, text); }

  qx_communicator* group_ = nullptr;
  float value_ = 3;
  const qx_buffer one_ = {&value_, 1, QX_FLOAT32};
};

TEST_F(BadInput, NamesTheOptionThatIsWrong) {
  qx_communicator* group = group_;
  const auto try_options = [&](auto change, const char* text, qx_status expected = QX_INVALID_ARGUMENT) {
    qx_communicator_options options = options_for(0, 2, "file:///nowhere/at/all");
    change(options);
    expect(qx_communicator_create(&options, &group), expected, text);
    EXPECT_EQ(group, nullptr);
  };
  refused(qx_communicator_create(nullptr, &group), "options: null");
  refused(qx_communicator_create(nullptr, nullptr), "communicator: null");
  try_options([](auto& options) { options.struct_size = 8; }, "struct_size");
  try_options([](auto& options) { options.rank = -1; }, "rank");
  try_options([](auto& options) { options.rank = 2; }, "rank");
  try_options([](auto& options) { options.world_size = 0; }, "world_size");
  try_options([](auto& options) { options.address = nullptr; }, "options.address: null");
  for (const char* address : {"", "tcp://1.2.3.4:5", "mccl://", "mccl://1.2.3.4", "mccl://1.2.3.4:0", "mccl://:5",
                              "mccl://1.2.3.4:70000", "mccl://1.2.3.4:5x", "file://", "file://relative"}) {
    try_options([address](auto& options) { options.address = address; }, "address: expected mccl://host:port");
  }
  try_options([](auto& options) { options.timeout_ms = -1; }, "timeout_ms");
  try_options([](auto& options) { options.interface_address = "name"; }, "interface_address");
  try_options([](auto& options) { options.secret = "short"; }, "options.secret: expected a secret of 16");
  try_options([](auto& options) { options.secret_file = "/nowhere"; }, "options.secret_file: cannot open");
  try_options([](auto& options) { options.secret = options.secret_file = "both"; }, "options.secret");
  try_options([](auto& options) { options.tls_key_file = "/key"; }, "tls_*_file");
}

TEST_F(BadInput, RefusesOnlyFieldsOfLaterVersionsThatAreSet) {
  struct Later {
    qx_communicator_options known;
    int64_t added;
  } later = {};
  later.known.struct_size = sizeof(later);
  later.known.world_size = 1;
  qx_communicator* group = nullptr;
  EXPECT_EQ(qx_communicator_create(&later.known, &group), QX_OK) << qx_last_error();
  qx_communicator_destroy(group);
  later.added = 1;
  expect(qx_communicator_create(&later.known, &group), QX_UNIMPLEMENTED, "struct_size");
}

TEST_F(BadInput, RefusesNullHandles) {
  qx_phase phase;
  qx_communicator* group = nullptr;
  qx_memory* memory = nullptr;
  char* text = nullptr;
  int32_t member = 0, is_done = 0;
  for (const qx_status status :
       {qx_barrier(nullptr, 0, nullptr), qx_broadcast(nullptr, &one_, 0, 0, nullptr),
        qx_all_reduce(nullptr, &one_, nullptr, 0, nullptr), qx_reduce(nullptr, &one_, &one_, 0, nullptr, 0, nullptr),
        qx_all_gather(nullptr, &one_, &one_, 1, 0, nullptr), qx_gather(nullptr, &one_, &one_, 1, 0, 0, nullptr),
        qx_scatter(nullptr, &one_, 1, &one_, 0, 0, nullptr),
        qx_reduce_scatter(nullptr, &one_, 1, &one_, nullptr, 0, nullptr),
        qx_all_to_all(nullptr, &one_, &one_, 1, 0, nullptr), qx_send(nullptr, &one_, 0, 0, 0, nullptr),
        qx_recv(nullptr, &one_, 0, 0, 0, nullptr), qx_communicator_set_timeout(nullptr, 1),
        qx_communicator_wait_ready(nullptr, 1), qx_communicator_progress(nullptr, &phase, nullptr, 0),
        qx_communicator_split(nullptr, &member, 1, "", &group), qx_communicator_abort(nullptr, ""),
        qx_communicator_allocate(nullptr, 1, &memory), qx_communicator_statistics(nullptr, &text)}) {
    refused(status, "communicator: null pointer");
  }
  refused(qx_work_wait(nullptr, 0), "work: null");
  refused(qx_work_test(nullptr, &is_done), "work: null");
  refused(qx_work_on_completion(nullptr, nullptr, nullptr), "work: null");
  EXPECT_EQ(qx_communicator_rank(nullptr), -1);
  EXPECT_EQ(qx_communicator_world_size(nullptr), -1);
  EXPECT_EQ(qx_communicator_ready(nullptr), 0);
  EXPECT_EQ(qx_work_source_rank(nullptr), -1);
  EXPECT_EQ(qx_memory_data(nullptr), nullptr);
  qx_communicator_destroy(nullptr);
  qx_work_free(nullptr);
  qx_memory_free(nullptr);
  qx_text_free(nullptr);
}

TEST_F(BadInput, RefusesBuffersThatCannotBe) {
  const qx_buffer no_data = {nullptr, 1, QX_FLOAT32}, negative = {&value_, -1, QX_FLOAT32},
                  huge = {&value_, std::numeric_limits<int64_t>::max() / 2, QX_FLOAT32}, no_dtype = {&value_, 1, 20},
                  below = {&value_, 1, -1}, nothing = {nullptr, 0, QX_FLOAT32};
  qx_work* work = nullptr;
  for (qx_work** given : {static_cast<qx_work**>(nullptr), &work}) {
    refused(qx_all_reduce(group_, nullptr, nullptr, 0, given), "buffer: null");
    refused(qx_all_reduce(group_, &no_data, nullptr, 0, given), "buffer.data");
    refused(qx_broadcast(group_, &negative, 0, 0, given), "buffer.count");
    refused(qx_all_reduce(group_, &huge, nullptr, 0, given), "buffer.count");
    refused(qx_all_reduce(group_, &no_dtype, nullptr, 0, given), "buffer.dtype: expected a qx_dtype, got 20");
    refused(qx_send(group_, &below, 0, 0, 0, given), "buffer.dtype");
    refused(qx_recv(group_, nullptr, -1, 0, 0, given), "buffer: null");
    refused(qx_reduce(group_, &one_, nullptr, 0, nullptr, 0, given), "output: null");
    refused(qx_reduce(group_, nullptr, &one_, 0, nullptr, 0, given), "input: null");
    refused(qx_all_gather(group_, &one_, nullptr, 1, 0, given), "outputs: null");
    refused(qx_all_gather(group_, &one_, &one_, -1, 0, given), "num_outputs");
    refused(qx_all_gather(group_, &one_, &one_, int64_t{1} << 40, 0, given), "num_outputs");
    refused(qx_gather(group_, &one_, &no_dtype, 1, 0, 0, given), "outputs[0].dtype");
    refused(qx_scatter(group_, &one_, 0, &one_, 0, 0, given), "inputs");
    refused(qx_scatter(group_, &one_, 1, nullptr, 0, 0, given), "output: null");
    refused(qx_reduce_scatter(group_, &one_, 1, nullptr, nullptr, 0, given), "output: null");
    refused(qx_all_to_all(group_, &one_, nullptr, 1, 0, given), "outputs: null");
    EXPECT_EQ(work, nullptr);
  }
  EXPECT_EQ(qx_all_reduce(group_, &nothing, nullptr, 0, nullptr), QX_OK) << qx_last_error();
}

TEST_F(BadInput, RefusesCodesRanksAndTimesThatAreNone) {
  const qx_reduction none = {9, 0}, below = {-1, 0}, infinite = {QX_PREMUL_SUM, HUGE_VAL};
  refused(qx_all_reduce(group_, &one_, &none, 0, nullptr), "reduction.op: expected a qx_reduce_op, got 9");
  refused(qx_all_reduce(group_, &one_, &below, 0, nullptr), "reduction.op");
  refused(qx_all_reduce(group_, &one_, &infinite, 0, nullptr), "pre_multiplier");
  const qx_reduction bits = {QX_BIT_AND, 0};
  expect(qx_all_reduce(group_, &one_, &bits, 0, nullptr), QX_UNIMPLEMENTED, "float32");
  refused(qx_broadcast(group_, &one_, 1, 0, nullptr), "root");
  refused(qx_send(group_, &one_, 0, 0, 0, nullptr), "destination");
  refused(qx_recv(group_, &one_, -2, 0, 0, nullptr), "source");
  refused(qx_barrier(group_, -1, nullptr), "timeout");
  refused(qx_communicator_wait_ready(group_, -1), "timeout_ms");
  refused(qx_communicator_set_timeout(group_, 0), "timeout_ms");
  EXPECT_EQ(qx_communicator_set_timeout(group_, 5), QX_OK);
  qx_work* work = nullptr;
  ASSERT_EQ(qx_barrier(group_, 0, &work), QX_OK) << qx_last_error();
  refused(qx_work_wait(work, -1), "timeout_ms");
  refused(qx_work_test(work, nullptr), "is_done");
  refused(qx_work_on_completion(work, nullptr, nullptr), "callback");
  EXPECT_EQ(qx_work_wait(work, 0), QX_OK);
  qx_work_free(work);
}

TEST_F(BadInput, RefusesTheRest) {
  qx_phase phase;
  uint8_t is_seen[2];
  refused(qx_communicator_progress(group_, nullptr, nullptr, 0), "phase: null");
  refused(qx_communicator_progress(group_, &phase, is_seen, 2), "num_ranks");
  qx_communicator* group = nullptr;
  const int32_t members[] = {0, 0};
  refused(qx_communicator_split(group_, members, 1, "name", nullptr), "group: null");
  refused(qx_communicator_split(group_, nullptr, 1, "name", &group), "members: null");
  refused(qx_communicator_split(group_, members, 1, nullptr, &group), "name: null");
  refused(qx_communicator_split(group_, members, 0, "name", &group), "num_members");
  refused(qx_communicator_split(group_, members, 2, "name", &group), "num_members");
  qx_memory* memory = nullptr;
  refused(qx_communicator_allocate(group_, -1, &memory), "size_bytes");
  refused(qx_communicator_allocate(group_, std::numeric_limits<int64_t>::max(), &memory), "size_bytes");
  refused(qx_communicator_allocate(group_, 1, nullptr), "memory: null");
  char* text = nullptr;
  refused(qx_communicator_statistics(group_, nullptr), "json: null");
  refused(qx_flight_records(2, &text), "format");
  refused(qx_flight_records(QX_FLIGHT_JSON, nullptr), "json: null");
  refused(qx_write_flight_records(nullptr, QX_FLIGHT_JSON), "path: null");
  refused(qx_write_flight_records("records.json", -1), "format");
  expect(qx_write_flight_records("/nowhere/at/all", QX_FLIGHT_JSON), QX_UNAVAILABLE, "/nowhere");
}

}  // namespace
}  // namespace qx::collectives
