// TCP with numeric addresses only: nothing here asks a name server.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/transport/link.h"

namespace qx::collectives {

// "127.0.0.1:4711" or "[::1]:4711".
struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string to_string() const;
};
Result<Endpoint> parse_endpoint(const std::string& text);
// A numeric address and a port.
Result<Endpoint> make_endpoint(const std::string& address, uint16_t port);

// A closed-on-exec, non-blocking socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { reset(); }
  int fd() const { return fd_; }
  void reset();
  // The caller closes it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Listens on a port that the system chooses; the endpoint that it got is returned with it.
struct Listener {
  Socket socket;
  Endpoint endpoint;
};
Result<Listener> listen_on(const std::string& numeric_address);
// Has a port, but takes no connection before start_listening.
Result<Listener> bind_to(const std::string& numeric_address);
Status start_listening(const Socket& socket);
// Starts to connect; writable means that it has ended, socket_error says how.
Result<Socket> start_connect(const Endpoint& endpoint);
// kNotFound where no connection waits.
Result<Socket> accept_from(const Socket& listener);
int socket_error(const Socket& socket);
// Says that nothing more comes and waits until the peer has taken what was sent, has reset the connection, or
// `deadline`.
void finish_sending(const Socket& socket, std::chrono::steady_clock::time_point deadline);
// The addresses of network interfaces that are up, are no loopback and have global scope; IPv4 before IPv6. `denied`
// names interfaces and addresses that are left out, with commas between them.
Result<std::vector<std::string>> external_addresses(const std::string& denied);
// The first address of a network interface that is up, is no loopback and has global scope; IPv4 before IPv6.
Result<std::string> first_external_address();

class TcpLink : public Link {
 public:
  // `received` are bytes that arrived behind the handshake.
  TcpLink(int fd, std::vector<std::byte> received);

  size_t write(std::span<const std::byte> bytes) override;
  void flush() override;
  bool has_unsent() const override { return !outgoing_.empty(); }
  std::span<const std::byte> peek(size_t wanted) override;
  void consume(size_t num_bytes) override;
  size_t read(std::byte* destination, size_t size) override;
  std::string_view name() const override { return "TCP"; }

  // The peer has closed, and everything that it sent has been read.
  bool closed() const { return closed_ && begin_ == end_; }
  const std::string& close_reason() const { return close_reason_; }

 protected:
  // What arrives is of no use any more.
  void mark_closed(std::string reason);

 private:
  size_t receive(std::byte* destination, size_t size);

  int fd_;
  std::vector<std::byte> incoming_;
  size_t begin_ = 0;
  size_t end_ = 0;
  std::vector<std::byte> outgoing_;
  bool closed_ = false;
  std::string close_reason_;
};

}  // namespace qx::collectives
