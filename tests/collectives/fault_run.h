// Runs a fault case with one process a rank, and judges what the survivors were told.
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <regex>
#include <set>

#include "collectives/fault_case.h"
#include "collectives/ranks.h"

namespace qx::collectives::testing {

// What one survivor was told.
struct FaultReport {
  int rank = 0;
  int code = -1;  // of the first error; -1: none came, or the process did not end in order
  double seconds = 0;
  std::string message;
};

// The ranks that a message blames: "rank 3 (not entered ...)", "ranks 1, 4-5 of 8 are missing". Ranks that only report
// or measure something ("rank 0 reported", "on rank 0,") are not blamed.
inline std::set<int> blamed_ranks(const std::string& message) {
  static const std::regex blamed(
      R"(ranks? (\d[\d, -]*?)(?: \(| is miss| are miss| has died| have died| left| called| of \d+ (?:is|are) miss))");
  static const std::regex range(R"((\d+)(?:-(\d+))?)");
  std::set<int> ranks;
  for (std::sregex_iterator at(message.begin(), message.end(), blamed), end; at != end; ++at) {
    const std::string list = (*at)[1];
    for (std::sregex_iterator part(list.begin(), list.end(), range); part != end; ++part) {
      const int first = std::stoi((*part)[1]);
      const int last = (*part)[2].matched ? std::stoi((*part)[2]) : first;
      for (int rank = first; rank <= last; ++rank) ranks.insert(rank);
    }
  }
  return ranks;
}

namespace detail {

using RunClock = std::chrono::steady_clock;

constexpr milliseconds kFarDeadline{20000};

inline WorkPtr start_collective(Communicator& group, const FaultCase& fault, std::vector<float>& memory, int64_t count,
                                DType dtype, int root, milliseconds deadline) {
  const int world = fault.world_size;
  memory.resize(static_cast<size_t>(count * (2 * world + 2)));
  float* next = memory.data();
  const auto take = [&] {
    const Buffer buffer{next, count, dtype};
    next += count;
    return buffer;
  };
  const auto take_all = [&](bool wanted) {
    std::vector<Buffer> buffers;
    for (int r = 0; wanted && r < world; ++r) buffers.push_back(take());
    return buffers;
  };
  const bool is_root = group.options().rank == root;
  const Buffer one = take(), other = take();
  switch (fault.collective) {
    case Collective::kBarrier: return group.barrier(deadline);
    case Collective::kBroadcast: return group.broadcast(one, root, deadline);
    case Collective::kAllReduce: return group.all_reduce(one, {}, deadline);
    case Collective::kReduce: return group.reduce(one, other, root, {}, deadline);
    case Collective::kAllGather: return group.all_gather(one, take_all(true), deadline);
    case Collective::kReduceScatter: return group.reduce_scatter(take_all(true), one, {}, deadline);
    case Collective::kAllToAll: {
      auto inputs = take_all(true);
      return group.all_to_all(std::move(inputs), take_all(true), deadline);
    }
    case Collective::kGather: return group.gather(one, take_all(is_root), root, deadline);
    case Collective::kScatter: return group.scatter(take_all(is_root), one, root, deadline);
  }
  return nullptr;
}

inline void require_setup(bool condition, const char* what) {
  if (!condition) require(false, std::string(what) + ": " + std::strerror(errno));
}

// Every packet to this process's TCP sockets is thrown away by the kernel, unacknowledged.
inline void deafen() {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  for (int fd = 3; fd < 1024; ++fd) {
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) continue;
    require_setup(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0, "SO_ATTACH_FILTER");
  }
}

// What all ranks call when nothing is wrong. Values do not matter.
inline WorkPtr start_rightly(Communicator& group, const FaultCase& fault, std::vector<float>& memory,
                             milliseconds deadline) {
  return start_collective(group, fault, memory, fault.count, DType::kFloat32, fault.root, deadline);
}

[[noreturn]] inline void wait_to_be_killed() {
  while (true) pause();
}

[[noreturn]] inline void enter_wrongly(Communicator& group, const FaultCase& fault) {
  FaultCase wrong = fault;
  int64_t count = fault.count;
  int root = fault.root;
  DType dtype = DType::kFloat32;
  if (fault.fault == Fault::kEntersAnotherOperation) {
    const bool is_barrier = fault.collective == Collective::kBarrier;
    wrong.collective = is_barrier ? Collective::kAllReduce : Collective::kBarrier;
  }
  if (fault.fault == Fault::kEntersAnotherDtype) dtype = DType::kInt32;
  if (fault.fault == Fault::kEntersAnotherSize) count += 1;
  if (fault.fault == Fault::kEntersAnotherRoot) root = (root + 1) % fault.world_size;
  std::vector<float> memory;
  static_cast<void>(start_collective(group, wrong, memory, count, dtype, root, kFarDeadline)->wait());
  wait_to_be_killed();
}

[[noreturn]] inline void misbehave(Communicator& group, const FaultCase& fault) {
  // What ended well here has left this process.
  std::this_thread::sleep_for(milliseconds(50));
  switch (fault.fault) {
    case Fault::kDiesConnected: kill(getpid(), SIGKILL); break;
    case Fault::kStopsConnected: kill(getpid(), SIGSTOP); break;
    case Fault::kHearsNothing:
      deafen();
      kill(getpid(), SIGSTOP);
      break;
    case Fault::kDiesWithinOperation:
    case Fault::kStopsWithinOperation: {
      std::vector<float> memory;
      const WorkPtr work = start_rightly(group, fault, memory, kFarDeadline);
      std::this_thread::sleep_for(std::chrono::microseconds(fault.fault_delay_us));
      kill(getpid(), fault.fault == Fault::kDiesWithinOperation ? SIGKILL : SIGSTOP);
      break;
    }
    case Fault::kDoesNotEnter: break;
    default: enter_wrongly(group, fault);
  }
  wait_to_be_killed();
}

inline std::shared_ptr<Communicator> join(const FaultCase& fault, const std::string& directory, int rank) {
  Job job;
  job.world_size = fault.world_size;
  job.shared_memory = fault.shared_memory;
  job.timeout = fault.group_expires ? milliseconds(fault.deadline_ms) : kFarDeadline;
  job.directory = directory;
  return connect(job, rank);
}

[[noreturn]] inline void run_victim(const FaultCase& fault, const std::string& directory, int rank) {
  if (fault.fault == Fault::kNeverStarts) wait_to_be_killed();
  if (fault.fault == Fault::kDiesBeforeConnecting) kill(getpid(), SIGKILL);
  if (fault.fault == Fault::kStartsLate) std::this_thread::sleep_for(milliseconds(fault.deadline_ms + 200));
  const auto group = join(fault, directory, rank);
  if (fault.fault == Fault::kDiesWhileConnecting) {
    std::this_thread::sleep_for(std::chrono::microseconds(fault.fault_delay_us));
    kill(getpid(), SIGKILL);
  }
  if (fault.fault == Fault::kStartsLate) wait_to_be_killed();
  std::vector<float> memory;
  for (int i = 0; i < fault.good_operations; ++i) {
    static_cast<void>(start_rightly(*group, fault, memory, kFarDeadline)->wait());
  }
  misbehave(*group, fault);
}

inline FaultReport run_survivor(const FaultCase& fault, const std::string& directory, int rank) {
  // Never destroyed: the others are to be told by what went wrong, not by this rank's leaving.
  static const auto group = join(fault, directory, rank);
  FaultReport report;
  report.rank = rank;
  std::vector<float> memory;
  // What is to go wrong within an operation may come after it, and is then seen by the next.
  for (int i = 0; i < fault.good_operations + 2; ++i) {
    const auto start = RunClock::now();
    const milliseconds deadline = i < fault.good_operations ? kFarDeadline : milliseconds(fault.deadline_ms);
    const WorkPtr work = start_rightly(*group, fault, memory, deadline);
    const Status status = work->wait();
    report.seconds = std::chrono::duration<double>(RunClock::now() - start).count();
    report.code = static_cast<int>(status.code());
    report.message = status.message();
    if (!status.ok()) break;
  }
  return report;
}

inline void write_report(int fd, const FaultReport& report) {
  const std::string text = std::to_string(report.code) + " " + std::to_string(report.seconds) + " " + report.message;
  require_setup(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "write");
}

// Everything until the end of the file, or until the time is over.
inline std::string read_until(int fd, RunClock::time_point deadline) {
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - RunClock::now()).count();
    pollfd wanted{fd, POLLIN, 0};
    if (left <= 0 || poll(&wanted, 1, static_cast<int>(left)) <= 0) return text;
    char part[4096];
    const ssize_t got = read(fd, part, sizeof(part));
    if (got <= 0) return text;
    text.append(part, static_cast<size_t>(got));
  }
}

}  // namespace detail

// One report a survivor. Takes little longer than the deadline of the case.
inline std::vector<FaultReport> run_fault_case(const FaultCase& fault) {
  const Directory directory;
  std::vector<pid_t> processes;
  std::vector<int> answers;
  std::fflush(nullptr);
  for (int rank = 0; rank < fault.world_size; ++rank) {
    int pipes[2];
    detail::require_setup(pipe2(pipes, O_CLOEXEC) == 0, "pipe2");
    const pid_t process = fork();
    if (process == 0) {
      if (fault.is_victim(rank)) detail::run_victim(fault, directory.path(), rank);
      detail::write_report(pipes[1], detail::run_survivor(fault, directory.path(), rank));
      close(pipes[1]);
      detail::wait_to_be_killed();
    }
    close(pipes[1]);
    processes.push_back(process);
    answers.push_back(pipes[0]);
  }
  std::vector<FaultReport> reports;
  const auto deadline = detail::RunClock::now() + std::chrono::seconds(15);
  for (int rank = 0; rank < fault.world_size; ++rank) {
    if (fault.is_victim(rank)) continue;
    const std::string text = detail::read_until(answers[static_cast<size_t>(rank)], deadline);
    FaultReport report;
    report.rank = rank;
    int read = 0;
    if (std::sscanf(text.c_str(), "%d %lf %n", &report.code, &report.seconds, &read) == 2) {
      report.message = text.substr(static_cast<size_t>(read));
    }
    reports.push_back(report);
  }
  for (const pid_t process : processes) kill(process, SIGKILL);
  for (const pid_t process : processes) waitpid(process, nullptr, 0);
  for (const int fd : answers) close(fd);
  return reports;
}

// Empty, or what is wrong with what a survivor was told, its time apart.
inline std::string judge(const FaultCase& fault, const FaultReport& report) {
  const auto code = static_cast<StatusCode>(report.code);
  const std::string said = " in: " + report.message;
  if (report.code < 0) return "it said nothing";
  if (code == StatusCode::kOk) return "it saw no error";
  const std::set<int> blamed = blamed_ranks(report.message);
  if (is_mismatch(fault.fault)) {
    if (code != StatusCode::kInvalidArgument) return "a mismatch is not kInvalidArgument" + said;
    if (blamed.size() != 2 || !blamed.contains(fault.victims[0])) return "it names other calls than the odd one" + said;
    return "";
  }
  const bool may_be_known_dead = is_death(fault.fault) || fault.fault == Fault::kHearsNothing;
  const bool must_be_known_dead = may_be_known_dead && fault.good_operations > 0 && fault.fault != Fault::kHearsNothing;
  // Where the group has failed between two operations, the next one gives the reason.
  const bool is_late_news =
      code == StatusCode::kFailedPrecondition && report.message.find("reported: ") != std::string::npos;
  const bool right_code = is_late_news || (code == StatusCode::kDeadlineExceeded && !must_be_known_dead) ||
                          (code == StatusCode::kUnavailable && may_be_known_dead);
  if (!right_code) return "its code is " + std::string(status_code_name(code)) + said;
  if (blamed != std::set<int>(fault.victims.begin(), fault.victims.end())) return "it blames other ranks" + said;
  return "";
}

// Seconds after the deadline, negative before it.
inline double delay_of(const FaultCase& fault, const FaultReport& report) {
  return report.seconds - fault.deadline_ms / 1000.0;
}

}  // namespace qx::collectives::testing
