#include "quincunx/collectives/bootstrap/unix_name.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace qx::collectives {
namespace {

constexpr int kBacklog = 1024;

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<Name> parse(const std::string& name) {
  Name parsed;
  if (name.size() < 2 || name[0] != '@' || name.size() > sizeof(parsed.address.sun_path)) {
    return invalid_argument("expected @ and a name of at most " + std::to_string(sizeof(parsed.address.sun_path) - 1) +
                            " bytes, got \"" + name + "\"");
  }
  parsed.address.sun_family = AF_UNIX;
  // The first byte of an abstract name is zero.
  std::memcpy(parsed.address.sun_path + 1, name.data() + 1, name.size() - 1);
  parsed.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return parsed;
}

Result<Socket> make_socket() {
  Socket made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.fd() < 0) return unavailable(std::string("socket: ") + std::strerror(errno));
  return made;
}

}  // namespace

Result<Socket> listen_on_name(const std::string& name) {
  QX_ASSIGN_OR_RETURN(const Name parsed, parse(name));
  QX_ASSIGN_OR_RETURN(Socket listener, make_socket());
  if (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&parsed.address), parsed.length) != 0) {
    const std::string text = "bind to " + name + ": " + std::strerror(errno);
    return errno == EADDRINUSE ? failed_precondition(text) : unavailable(text);
  }
  if (listen(listener.fd(), kBacklog) != 0) return unavailable("listen on " + name + ": " + std::strerror(errno));
  return listener;
}

Result<Socket> connect_to_name(const std::string& name) {
  QX_ASSIGN_OR_RETURN(const Name parsed, parse(name));
  QX_ASSIGN_OR_RETURN(Socket connection, make_socket());
  if (connect(connection.fd(), reinterpret_cast<const sockaddr*>(&parsed.address), parsed.length) != 0) {
    // EAGAIN: the listener's queue is full. The caller tries again later, as after a refusal.
    return unavailable("connect to " + name + ": " + std::strerror(errno));
  }
  return connection;
}

Status check_same_user(const Socket& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return unavailable(std::string("getsockopt SO_PEERCRED: ") + std::strerror(errno));
  }
  if (peer.uid == geteuid()) return ok_status();
  return failed_precondition("process " + std::to_string(peer.pid) + " belongs to user " + std::to_string(peer.uid) +
                             ", expected user " + std::to_string(geteuid()));
}

}  // namespace qx::collectives
