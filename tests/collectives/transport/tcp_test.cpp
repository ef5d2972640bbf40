#include "quincunx/collectives/transport/tcp.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace {
int num_aborted = 0;  // connections that are still to be taken for ones that their peers have given up
}  // namespace

// In place of the system's, also for the library: Linux hands out such connections itself, other kernels do not.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (num_aborted > 0) {
    --num_aborted;
    errno = ECONNABORTED;
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept4, fd, address, length, flags));
}

namespace qx::collectives {
namespace {

// The system takes one port after another for outgoing connections, and comes to the one that is asked for.
TEST(Tcp, NothingConnectsToItself) {
  constexpr int kNumPorts = 30'000;
  Endpoint silent;
  {
    Result<Listener> probe = bind_to("127.0.0.1");
    ASSERT_TRUE(probe.ok()) << probe.status();
    silent = probe->endpoint;
  }
  // Connections take even ports as long as there are any.
  auto& port = reinterpret_cast<sockaddr_in&>(silent.address).sin_port;
  port = htons(ntohs(port) & ~1);
  bool was_refused = false;
  for (int i = 0; i < kNumPorts; ++i) {
    const Result<Socket> made = start_connect(silent);
    if (!made.ok()) {
      was_refused = true;
      break;
    }
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    ASSERT_EQ(getsockname(made->fd(), reinterpret_cast<sockaddr*>(&own), &length), 0);
    ASSERT_NE(std::memcmp(&own, &silent.address, length), 0) << "attempt " << i << " reached itself";
  }
  if (!was_refused) GTEST_SKIP() << "the port of " << silent.to_string() << " was never taken for a connection";
}

// Until the connection waits to be accepted.
void connect_to(const Result<Listener>& listener, Result<Socket>& client) {
  ASSERT_TRUE(listener.ok());
  client = start_connect(listener->endpoint);
  ASSERT_TRUE(client.ok());
  pollfd waiting{listener->socket.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 5000), 1);
}

TEST(Tcp, AConnectionThatWasGivenUpHidesNoneBehindIt) {
  Result<Listener> listener = listen_on("127.0.0.1");
  Result<Socket> client = not_found("no connection");
  connect_to(listener, client);
  ASSERT_FALSE(HasFatalFailure());
  num_aborted = 2;
  EXPECT_TRUE(accept_from(listener->socket).ok());
  EXPECT_EQ(num_aborted, 0);
  EXPECT_EQ(accept_from(listener->socket).status().code(), StatusCode::kNotFound);
}

// The deadlines are far behind the test's own.
TEST(Tcp, SendingEndsWhenThePeerHasTakenAllOrResetTheConnection) {
  for (const bool is_read : {true, false}) {
    Result<Listener> listener = listen_on("127.0.0.1");
    Result<Socket> client = not_found("no connection");
    connect_to(listener, client);
    ASSERT_FALSE(HasFatalFailure());
    auto accepted = accept_from(listener->socket);
    ASSERT_TRUE(accepted.ok());
    // More than both sides buffer: some of it waits for the peer for ever.
    const std::vector<char> bytes(64 << 10, 'x');
    size_t sent = 0;
    while (true) {
      const ssize_t count = send(client->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<size_t>(count);
    }
    std::thread peer([&] {
      std::vector<char> into(1 << 20);
      for (size_t taken = 0; is_read && taken < sent;) {
        const ssize_t count = recv(accepted->fd(), into.data(), into.size(), 0);
        if (count > 0) taken += static_cast<size_t>(count);
      }
      if (!is_read) accepted->reset();
    });
    finish_sending(*client, std::chrono::steady_clock::now() + std::chrono::hours(1));
    peer.join();
  }
}

TEST(Tcp, AListenerIsReached) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    Result<Listener> listener = listen_on(address);
    if (!listener.ok()) continue;  // there may be no IPv6
    const Result<Socket> made = start_connect(listener->endpoint);
    ASSERT_TRUE(made.ok()) << made.status();
    Result<Socket> accepted = accept_from(listener->socket);
    for (int i = 0; i < 1000 && !accepted.ok(); ++i) accepted = accept_from(listener->socket);
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    EXPECT_EQ(socket_error(*made), 0);
  }
}

}  // namespace
}  // namespace qx::collectives
