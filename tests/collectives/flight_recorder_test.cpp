// The flight recorder: what it keeps, in which order, and that it is right under many threads.
#include "quincunx/collectives/flight_recorder.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json recorded() { return json::parse(flight_records_text(FlightFormat::kJson)); }

FlightRecord record_of(uint64_t sequence) {
  FlightRecord record;
  record.operation = Operation::kAllReduce;
  record.set_group_name("default");
  record.sequence = sequence;
  record.started = std::chrono::steady_clock::now();
  return record;
}

TEST(FlightRecorder, KeepsTheLastRecordsInOrder) {
  FlightRecorder& recorder = FlightRecorder::instance();
  recorder.clear();
  constexpr uint64_t kMore = FlightRecorder::kCapacity + 17;
  for (uint64_t i = 0; i < kMore; ++i) recorder.end(recorder.begin(record_of(i)), ok_status());
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), FlightRecorder::kCapacity);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].sequence, i + 17);
    EXPECT_EQ(records[i].state, FlightState::kCompleted);
  }
}

TEST(FlightRecorder, AnEndThatComesTooLateChangesNothing) {
  FlightRecorder& recorder = FlightRecorder::instance();
  recorder.clear();
  const uint64_t first = recorder.begin(record_of(0));
  for (uint64_t i = 1; i <= FlightRecorder::kCapacity; ++i) recorder.begin(record_of(i));
  recorder.end(first, aborted("late"));
  for (const FlightRecord& record : recorder.records()) EXPECT_EQ(record.state, FlightState::kPending);
}

TEST(FlightRecorder, LongNamesAreCutAndStrangeOnesAreWritten) {
  FlightRecorder::instance().clear();
  FlightRecord record = record_of(0);
  record.set_group_name(std::string(100, 'g'));
  EXPECT_EQ(record.group_name(), std::string(47, 'g'));
  record.set_group_name("\xff\"\n");
  FlightRecorder::instance().begin(record);
  EXPECT_EQ(recorded()["operations"].size(), 1u);
}

TEST(FlightRecorder, ThreadsDoNotDisturbEachOther) {
  FlightRecorder& recorder = FlightRecorder::instance();
  recorder.clear();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < 2000; ++i) recorder.end(recorder.begin(record_of(i)), aborted("text"));
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_LE(recorder.records().size(), FlightRecorder::kCapacity);
  for (auto& thread : threads) thread.join();
  for (const FlightRecord& record : recorder.records()) EXPECT_EQ(record.error, "text");
}

TEST(FlightRecorder, SeesWhatACommunicatorDoes) {
  FlightRecorder::instance().clear();
  run_threads({.world_size = 2}, [](Communicator& communicator, int rank) {
    std::vector<float> values(10, 1.0f);
    require_ok(communicator.all_reduce(buffer_of(values, DType::kFloat32), {})->wait());
    std::vector<float> short_values(static_cast<size_t>(rank) + 1);
    static_cast<void>(communicator.all_reduce(buffer_of(short_values, DType::kFloat32), {})->wait());
  });
  const json operations = recorded()["operations"];
  ASSERT_EQ(operations.size(), 4u);
  int num_failed = 0;
  for (const json& operation : operations) {
    EXPECT_EQ(operation["operation"], "all_reduce");
    EXPECT_EQ(operation["world_size"], 2);
    if (operation["sequence"] == 0) {
      EXPECT_EQ(operation["state"], "completed");
      EXPECT_EQ(operation["bytes"], 40);
    } else {
      ++num_failed;
      EXPECT_EQ(operation["error_code"], "INVALID_ARGUMENT");
      EXPECT_THAT(operation["error"].get<std::string>(), HasSubstr("differ in size"));
    }
  }
  EXPECT_EQ(num_failed, 2);
}

TEST(FlightRecorder, TellsWhereItCannotBeWritten) {
  const Status status = write_flight_records("/no/such/folder/file.json", FlightFormat::kJson);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/folder/file.json"));
}

TEST(FlightRecorder, LeavesNoPartWhereItCannotBeRenamed) {
  const Directory directory;
  const std::string taken = directory.path() + "/folder";
  ASSERT_TRUE(std::filesystem::create_directory(taken));
  EXPECT_EQ(write_flight_records(taken, FlightFormat::kJson).code(), StatusCode::kUnavailable);
  const std::filesystem::directory_iterator entries(directory.path());
  EXPECT_EQ(std::distance(entries, {}), 1);
  std::filesystem::remove(taken);
}

TEST(FlightRecorder, AFailureWritesTheFileThatWasAskedFor) {
  const Directory directory;
  const std::string path = directory.path() + "/%p.trace.json";
  setenv("QX_MCCL_FLIGHT_RECORDER", path.c_str(), 1);
  write_flight_records_after_failure();
  unsetenv("QX_MCCL_FLIGHT_RECORDER");
  std::ifstream file(directory.path() + "/" + std::to_string(getpid()) + ".trace.json");
  EXPECT_TRUE(json::parse(file).contains("traceEvents"));
}

}  // namespace
}  // namespace qx::collectives::testing
