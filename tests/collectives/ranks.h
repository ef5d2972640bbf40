// Runs the ranks of a job as processes that are forked from the test, each with a hard time limit, and tells which of
// their checks failed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/store/file_store.h"
#include "quincunx/collectives/store/memory_store.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives::testing {

using std::chrono::milliseconds;

// Ends the rank's process with the text as its report where the condition does not hold.
inline void require(bool condition, const std::string& text) {
  if (condition) return;
  std::fprintf(stderr, "rank process %d: %s\n", getpid(), text.c_str());
  _exit(1);
}
inline void require_ok(const Status& status) { require(status.ok(), status.to_string()); }
inline void require_contains(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  require(status.code() == code, "unexpected status: " + status.to_string());
  for (const std::string& part : parts) {
    require(status.message().find(part) != std::string::npos, "no \"" + part + "\" in: " + status.to_string());
  }
}

// How many ranks have come to some point of a test; made before the ranks are forked, which share it.
class Arrivals {
 public:
  Arrivals() {
    void* memory = mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    QX_CHECK(memory != MAP_FAILED);
    count_ = new (memory) Count(0);
  }
  ~Arrivals() { munmap(count_, sizeof(Count)); }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  void arrive() const { count_->fetch_add(1); }
  int count() const { return count_->load(); }
  void wait_for(int count) const {
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(20000);
    while (count_->load() < count) {
      require(std::chrono::steady_clock::now() < deadline, std::to_string(count) + " ranks have not come");
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

 private:
  using Count = std::atomic<int>;
  Count* count_;
};

class Directory {
 public:
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "qx-mccl-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "mccl://127.0.0.1:port" with a port that was free a moment ago.
inline std::string free_address() {
  const auto listener = listen_on("127.0.0.1");
  QX_CHECK(listener.ok());
  return "mccl://" + listener->endpoint.to_string();
}

struct Job {
  int world_size = 2;
  bool shared_memory = true;
  milliseconds timeout{20000};
  milliseconds limit{60000};   // every process is killed after this
  std::string directory = {};  // of the store
};

inline Options options_of(const Job& job, int rank) {
  Options options;
  options.rank = rank;
  options.world_size = job.world_size;
  options.timeout = job.timeout;
  options.allow_shared_memory = job.shared_memory;
  return options;
}

inline std::shared_ptr<Communicator> connect(const Job& job, int rank) {
  auto store = FileStore::open(job.directory);
  require_ok(store.status());
  auto communicator = Communicator::create(options_of(job, rank), *store);
  require_ok(communicator.status());
  return *communicator;
}

// Another process wakes it once that many ranks have come.
inline void stop_this_process(const Arrivals& arrivals, int count) {
  const pid_t self = getpid();
  if (fork() == 0) {
    arrivals.wait_for(count);
    kill(self, SIGCONT);
    _exit(0);
  }
  kill(self, SIGSTOP);
}

using RankBody = std::function<void(const Job& job, int rank)>;

// Forks one process a rank. `expected[r]` is the exit status, or the negated signal, that rank r must end with; 0 where
// it has no entry.
inline void run_processes(Job job, const RankBody& body, const std::vector<int>& expected = {}) {
  const Directory directory;
  job.directory = directory.path();
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < job.world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      body(job, rank);
      _exit(0);
    }
    pids.push_back(pid);
  }
  const auto deadline = std::chrono::steady_clock::now() + job.limit;
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(pids[rank], &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(2));
    }
    if (ended == 0) {
      kill(pids[rank], SIGKILL);
      waitpid(pids[rank], &status, 0);
      ADD_FAILURE() << "rank " << rank << " did not end within " << job.limit.count() << " ms";
      continue;
    }
    const int outcome = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    EXPECT_EQ(outcome, rank < expected.size() ? expected[rank] : 0) << "rank " << rank;
  }
}

// The same as threads of this process: what ThreadSanitizer and AddressSanitizer look at.
inline void run_threads(const Job& job, const std::function<void(Communicator&, int rank)>& body) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto communicator = Communicator::create(options_of(job, rank), store);
      require_ok(communicator.status());
      body(**communicator, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
Buffer buffer_of(std::vector<T>& values, DType dtype) {
  return {values.data(), static_cast<int64_t>(values.size()), dtype};
}

}  // namespace qx::collectives::testing
