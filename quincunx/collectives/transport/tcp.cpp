#include "quincunx/collectives/transport/tcp.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <thread>

namespace qx::collectives {
namespace {

// A root may hear of all its leaders at once; the system allows as many as net.core.somaxconn.
constexpr int kBacklog = 4096;
constexpr size_t kReceiveBytes = 128 << 10;
// Small frames are collected to one system call; larger pieces go to the socket without a copy.
constexpr size_t kCollectBytes = 16 << 10;

Status system_error(const std::string& what) { return unavailable(what + ": " + std::strerror(errno)); }

const void* raw_address(const Endpoint& endpoint) {
  if (endpoint.address.ss_family == AF_INET) return &reinterpret_cast<const sockaddr_in*>(&endpoint.address)->sin_addr;
  return &reinterpret_cast<const sockaddr_in6*>(&endpoint.address)->sin6_addr;
}

bool is_same(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) return false;
  if (one.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(one);
    const auto& b = reinterpret_cast<const sockaddr_in&>(other);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  const auto& a = reinterpret_cast<const sockaddr_in6&>(one);
  const auto& b = reinterpret_cast<const sockaddr_in6&>(other);
  return a.sin6_port == b.sin6_port && IN6_ARE_ADDR_EQUAL(&a.sin6_addr, &b.sin6_addr);
}

bool is_external(const ifaddrs& entry, int family) {
  if (entry.ifa_addr == nullptr || entry.ifa_addr->sa_family != family) return false;
  if ((entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_LOOPBACK) != 0) return false;
  if (family == AF_INET) return true;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

}  // namespace

std::string Endpoint::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.ss_family, raw_address(*this), text, sizeof(text));
  // The port stands at the same place for both families.
  const std::string port = std::to_string(ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port));
  return address.ss_family == AF_INET6 ? "[" + std::string(text) + "]:" + port : std::string(text) + ":" + port;
}

Result<Endpoint> make_endpoint(const std::string& address, uint16_t port) {
  Endpoint endpoint;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&endpoint.address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&endpoint.address);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    endpoint.length = sizeof(sockaddr_in);
    return endpoint;
  }
  if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    endpoint.length = sizeof(sockaddr_in6);
    return endpoint;
  }
  return invalid_argument("expected a numeric IPv4 or IPv6 address, got \"" + address + "\"");
}

Result<Endpoint> parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  if (colon == std::string::npos || colon == 0 || std::from_chars(text.data() + colon + 1, end, port).ptr != end ||
      port == 0) {
    return invalid_argument("expected address:port, got \"" + text + "\"");
  }
  std::string address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') address = address.substr(1, colon - 2);
  return make_endpoint(address, port);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<Listener> bind_to(const std::string& numeric_address) {
  Listener listener;
  QX_ASSIGN_OR_RETURN(listener.endpoint, make_endpoint(numeric_address, 0));
  auto* address = reinterpret_cast<sockaddr*>(&listener.endpoint.address);
  listener.socket = Socket(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.socket.fd() < 0) return system_error("socket");
  if (bind(listener.socket.fd(), address, listener.endpoint.length) != 0) {
    return system_error("bind to " + numeric_address);
  }
  listener.endpoint.length = sizeof(listener.endpoint.address);
  if (getsockname(listener.socket.fd(), address, &listener.endpoint.length) != 0) return system_error("getsockname");
  return listener;
}

Status start_listening(const Socket& socket) {
  return listen(socket.fd(), kBacklog) == 0 ? ok_status() : system_error("listen");
}

Result<Listener> listen_on(const std::string& numeric_address) {
  QX_ASSIGN_OR_RETURN(Listener listener, bind_to(numeric_address));
  QX_RETURN_IF_ERROR(start_listening(listener.socket));
  return listener;
}

Result<Socket> start_connect(const Endpoint& endpoint) {
  Socket connection(socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection.fd() < 0) return system_error("socket");
  const int one = 1;
  setsockopt(connection.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  const auto* address = reinterpret_cast<const sockaddr*>(&endpoint.address);
  if (connect(connection.fd(), address, endpoint.length) != 0 && errno != EINPROGRESS) {
    return system_error("connect to " + endpoint.to_string());
  }
  // Where nobody listens on a port of the range for outgoing connections, a connection may be made to itself.
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (getsockname(connection.fd(), reinterpret_cast<sockaddr*>(&own), &length) == 0 && is_same(own, endpoint.address)) {
    return unavailable("connect to " + endpoint.to_string() + ": " + std::strerror(ECONNREFUSED));
  }
  return connection;
}

Result<Socket> accept_from(const Socket& listener) {
  // One that its peer has given up already says nothing about those behind it, and no event tells of them again.
  int fd = -1;
  do {
    fd = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (fd < 0 && (errno == ECONNABORTED || errno == EINTR || errno == EPROTO));
  Socket connection(fd);
  if (fd < 0 && errno == EAGAIN) return not_found("no connection waits");
  if (fd < 0) return system_error("accept");
  const int one = 1;
  setsockopt(connection.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return connection;
}

int socket_error(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

void finish_sending(const Socket& socket, std::chrono::steady_clock::time_point deadline) {
  shutdown(socket.fd(), SHUT_WR);
  while (std::chrono::steady_clock::now() < deadline) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    // A connection that was reset keeps what nobody will acknowledge.
    if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state == TCP_CLOSE) return;
    int unacknowledged = 0;
    constexpr int kEnd = 1;  // counts as a byte
    if (ioctl(socket.fd(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= kEnd) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<std::vector<std::string>> external_addresses(const std::string& denied) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return system_error("getifaddrs");
  const std::string listed = "," + denied + ",";
  const auto is_denied = [&](const std::string& name) { return listed.find("," + name + ",") != std::string::npos; };
  std::vector<std::string> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (!is_external(*entry, family) || is_denied(entry->ifa_name)) continue;
      char text[INET6_ADDRSTRLEN] = "";
      const void* raw = family == AF_INET
                            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr)
                            : &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (inet_ntop(family, raw, text, sizeof(text)) != nullptr && !is_denied(text)) found.emplace_back(text);
    }
  }
  freeifaddrs(list);
  return found;
}

Result<std::string> first_external_address() {
  QX_ASSIGN_OR_RETURN(const std::vector<std::string> found, external_addresses(""));
  if (found.empty()) return not_found("no network interface is up but loopback: set QX_MCCL_INTERFACE to an address");
  return found.front();
}

TcpLink::TcpLink(int fd, std::vector<std::byte> received) : fd_(fd), incoming_(std::move(received)) {
  end_ = incoming_.size();
  incoming_.resize(std::max(incoming_.size(), kReceiveBytes));
}

size_t TcpLink::write(std::span<const std::byte> bytes) {
  if (closed_) return bytes.size();
  if (outgoing_.size() + bytes.size() <= kCollectBytes) {
    outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
    return bytes.size();
  }
  TcpLink::flush();
  if (!outgoing_.empty()) return 0;
  if (bytes.size() <= kCollectBytes) {
    outgoing_.assign(bytes.begin(), bytes.end());
    return bytes.size();
  }
  const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return sent > 0 ? static_cast<size_t>(sent) : 0;
}

void TcpLink::flush() {
  if (outgoing_.empty()) return;
  const ssize_t sent = send(fd_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
  if (sent > 0) outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
  // A broken connection is seen, and named, by the reader.
  if (sent < 0 && errno != EAGAIN && errno != EINTR) outgoing_.clear();
}

void TcpLink::mark_closed(std::string reason) {
  closed_ = true;
  begin_ = end_;
  close_reason_ = std::move(reason);
}

size_t TcpLink::receive(std::byte* destination, size_t size) {
  if (closed_) return 0;
  const ssize_t got = recv(fd_, destination, size, 0);
  if (got > 0) return static_cast<size_t>(got);
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    closed_ = true;
    close_reason_ = got == 0 ? "closed its connection" : std::string("connection: ") + std::strerror(errno);
  }
  return 0;
}

std::span<const std::byte> TcpLink::peek(size_t wanted) {
  if (end_ - begin_ < wanted) {
    if (begin_ > 0) std::memmove(incoming_.data(), incoming_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    end_ += receive(incoming_.data() + end_, incoming_.size() - end_);
  }
  return {incoming_.data() + begin_, end_ - begin_};
}

void TcpLink::consume(size_t num_bytes) { begin_ += num_bytes; }

size_t TcpLink::read(std::byte* destination, size_t size) {
  if (begin_ == end_ && size >= kCollectBytes) return receive(destination, size);
  return Link::read(destination, size);
}

}  // namespace qx::collectives
