#include "quincunx/apps/comm_probes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::apps {
namespace {

using collectives::Endpoint;
using collectives::Listener;
using collectives::Socket;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kProbeTime{2000};
// A leader has up to 128 children, and a rank 16 descriptors; the program needs some of its own.
constexpr rlim_t kSmallFileLimit = 256;
constexpr int kSmallPortRange = 1024;
// A rank offers so many addresses at most.
constexpr size_t kMostOffered = 4;
constexpr size_t kPageBytes = 4096;
constexpr char kGreeting[] = "quincunx";

Probe fine(const char* name, std::string detail) { return {name, Verdict::kFine, std::move(detail), ""}; }
Probe warning(const char* name, std::string detail, std::string advice) {
  return {name, Verdict::kWarning, std::move(detail), std::move(advice)};
}
Probe failed(const char* name, std::string detail, std::string advice) {
  return {name, Verdict::kFailed, std::move(detail), std::move(advice)};
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string link_target(const char* path) {
  char target[128] = "";
  return readlink(path, target, sizeof(target) - 1) > 0 ? target : "unknown";
}

std::string numeric_address(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* raw = address->sa_family == AF_INET
                        ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                        : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return inet_ntop(address->sa_family, raw, text, sizeof(text)) != nullptr ? text : "";
}

// Empty, or why no connection came up.
std::string connect_problem(const Endpoint& endpoint, milliseconds timeout) {
  const Result<Socket> socket = collectives::start_connect(endpoint);
  if (!socket.ok()) return socket.status().message();
  pollfd wanted = {socket->fd(), POLLOUT, 0};
  const int ready = poll(&wanted, 1, static_cast<int>(timeout.count()));
  if (ready == 0) return "no answer within " + std::to_string(timeout.count()) + " ms";
  const int error = ready < 0 ? errno : collectives::socket_error(*socket);
  return error == 0 ? "" : std::strerror(error);
}

// Empty, or why an address cannot be listened on and reached from this process.
std::string listen_problem(const std::string& address) {
  const Result<Listener> listener = collectives::listen_on(address);
  if (!listener.ok()) return listener.status().message();
  return connect_problem(listener->endpoint, kProbeTime);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// What ranks of other hosts are told to try, best first.
Result<std::vector<std::string>> offered_addresses() {
  const std::string wish = variable("QX_MCCL_INTERFACE");
  if (!wish.empty()) return std::vector<std::string>{wish};
  QX_ASSIGN_OR_RETURN(std::vector<std::string> found,
                      collectives::external_addresses(variable("QX_MCCL_INTERFACE_DENY")));
  if (found.size() > kMostOffered) found.resize(kMostOffered);
  return found;
}

// Runs `body` in a child whose standard streams are silent; `talk` reads what it writes and may kill it afterwards.
template <typename Body, typename Talk>
void with_child(const Body& body, const Talk& talk) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    close(pipes[0]);
    body(pipes[1]);
    pause();
    _exit(0);
  }
  close(pipes[1]);
  if (child > 0) {
    talk(child, pipes[0]);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  close(pipes[0]);
}

void share_page(int out) {
  const int memory = memfd_create("quincunx-doctor", MFD_CLOEXEC);
  const bool filled = memory >= 0 && ftruncate(memory, kPageBytes) == 0 &&
                      pwrite(memory, kGreeting, sizeof(kGreeting), 0) == sizeof(kGreeting);
  const int answer = filled ? memory : -1;
  if (write(out, &answer, sizeof(answer)) != sizeof(answer)) _exit(1);
}

std::string map_problem(pid_t child, int in) {
  int descriptor = -1;
  if (read(in, &descriptor, sizeof(descriptor)) != sizeof(descriptor) || descriptor < 0) return "memfd_create fails";
  const std::string path = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(descriptor);
  const Socket memory(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (memory.fd() < 0)
    return "open of /proc/PID/fd/N of another process of this user: " + std::string(std::strerror(errno));
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  if (page == MAP_FAILED) return "mmap of another process's memory: " + std::string(std::strerror(errno));
  const bool same = std::memcmp(page, kGreeting, sizeof(kGreeting)) == 0;
  munmap(page, kPageBytes);
  return same ? "" : "the mapped page holds something else";
}

std::string abstract_problem() {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "quincunx-doctor-" + std::to_string(getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  const Socket listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Socket client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (bind(listener.fd(), raw, length) != 0 || listen(listener.fd(), 1) != 0 ||
      connect(client.fd(), raw, length) != 0) {
    return std::strerror(errno);
  }
  const Result<Socket> accepted = collectives::accept_from(listener);
  if (!accepted.ok()) return accepted.status().message();
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(accepted->fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::strerror(errno);
  return peer.pid == getpid() && peer.uid == geteuid() ? "" : "the kernel names another process at the other end";
}

std::string limit_text(rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : std::to_string(value); }

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const Result<std::vector<std::string>> offered = offered_addresses();
  const auto is_offered = [&](const std::string& address) {
    return offered.ok() && std::find(offered->begin(), offered->end(), address) != offered->end();
  };
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool is_internet =
        entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
    if (!is_internet) continue;
    const std::string address = numeric_address(entry->ifa_addr);
    found.push_back({entry->ifa_name, address,
                     (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0,
                     (entry->ifa_flags & IFF_LOOPBACK) != 0, is_offered(address)});
  }
  freeifaddrs(list);
  return found;
}

Probe probe_host() {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  const std::string detail = "boot " + (boot.empty() ? "unknown" : boot) + ", " + link_target("/proc/self/ns/net") +
                             ", " + link_target("/proc/self/ns/pid") + ", user " + std::to_string(geteuid());
  if (!boot.empty()) return fine("host identity", detail);
  return failed("host identity", detail, "/proc/sys/kernel/random/boot_id cannot be read: mount /proc");
}

Probe probe_offered_addresses() {
  constexpr char kName[] = "address for other hosts";
  const Result<std::vector<std::string>> offered = offered_addresses();
  if (!offered.ok()) return failed(kName, offered.status().message(), "the interfaces of this host cannot be listed");
  if (offered->empty()) {
    return warning(kName, "none: no interface is up but loopback",
                   "one host is enough without; for several, bring an interface up or set QX_MCCL_INTERFACE");
  }
  std::string detail;
  size_t num_reached = 0;
  for (const std::string& address : *offered) {
    const std::string problem = listen_problem(address);
    num_reached += problem.empty() ? 1 : 0;
    detail += (detail.empty() ? "" : "; ") + address + (problem.empty() ? " accepts connections" : ": " + problem);
  }
  if (num_reached == offered->size()) return fine(kName, detail);
  const char* advice = "set QX_MCCL_INTERFACE to a numeric address that others reach, or QX_MCCL_INTERFACE_DENY";
  return num_reached > 0 ? warning(kName, detail, advice) : failed(kName, detail, advice);
}

Probe probe_loopback() {
  const std::string problem = listen_problem("127.0.0.1");
  if (problem.empty()) return fine("loopback", "127.0.0.1 accepts connections");
  return failed("loopback", "127.0.0.1: " + problem, "bring it up: ip link set lo up");
}

Probe probe_abstract_sockets() {
  const std::string problem = abstract_problem();
  if (problem.empty()) return fine("abstract sockets", "work, and name the process at the other end");
  return failed("abstract sockets", problem, "allow AF_UNIX in the sandbox or seccomp profile of this container");
}

Probe probe_shared_memory() {
  std::string problem = "no second process can be started";
  with_child(share_page, [&](pid_t child, int in) { problem = map_problem(child, in); });
  if (problem.empty())
    return fine("shared memory", "anonymous memory of another process can be mapped (/dev/shm is not used)");
  return warning("shared memory", problem,
                 "ranks of this host will use TCP; let them run as one user, with one /proc, and dumpable");
}

Probe probe_file_limit() {
  struct rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string detail = limit_text(limit.rlim_cur) + ", at most " + limit_text(limit.rlim_max);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kSmallFileLimit) return fine("open files", detail);
  return warning("open files", detail, "a rank with children needs up to 144 descriptors: ulimit -n 1024");
}

Probe probe_locked_memory() {
  struct rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return fine("locked memory",
              limit_text(limit.rlim_cur) + (limit.rlim_cur == RLIM_INFINITY ? "" : " bytes") + "; nothing is locked");
}

Probe probe_ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0, last = 0;
  file >> first >> last;
  if (!file) return warning("ports", "/proc/sys/net/ipv4/ip_local_port_range cannot be read", "mount /proc");
  const std::string detail = std::to_string(first) + " to " + std::to_string(last);
  if (last - first + 1 >= kSmallPortRange) return fine("ports", detail);
  return warning("ports", detail, "every rank listens on a port of this range: widen net.ipv4.ip_local_port_range");
}

Probe probe_credentials() {
  const auto credentials = collectives::Credentials::from_environment();
  if (!credentials.ok()) return failed("secret", credentials.status().message(), "every rank would refuse to start");
  const std::string encryption = credentials->tls ? "TLS 1.3 between hosts" : "no TLS";
  if (!credentials->secret.empty()) return fine("secret", "set; " + encryption);
  return fine("secret", "none set: the job's random token, which the store hands out, stands for it; " + encryption);
}

Probe probe_peer(const std::string& endpoint, milliseconds timeout) {
  const std::string name = "peer " + endpoint;
  const Result<Endpoint> parsed = collectives::parse_endpoint(endpoint);
  if (!parsed.ok()) return failed(name.c_str(), parsed.status().message(), "give a numeric address and a port");
  const auto start = Clock::now();
  const std::string problem = connect_problem(*parsed, timeout);
  const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  if (problem.empty()) return fine(name.c_str(), "accepts connections, after " + std::to_string(spent.count()) + " us");
  const char* advice = problem == std::strerror(ECONNREFUSED)
                           ? "the host answers, but nothing listens on that port, or a firewall rejects it"
                           : "no route, or a firewall drops the packets: compare with ping and traceroute";
  return failed(name.c_str(), problem, advice);
}

}  // namespace qx::apps
