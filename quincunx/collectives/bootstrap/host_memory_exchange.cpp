#include "quincunx/collectives/bootstrap/host_memory_exchange.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "quincunx/collectives/bootstrap/unix_name.h"

namespace qx::collectives {
namespace {

constexpr std::chrono::milliseconds kRetryPause{2};

// A message of one byte, with room for a descriptor beside it.
class DescriptorMessage {
 public:
  DescriptorMessage() {
    message_.msg_iov = &piece_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_;
    message_.msg_controllen = sizeof(control_);
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  msghdr& message() { return message_; }

 private:
  char byte_ = 1;
  iovec piece_{&byte_, 1};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr message_{};
};

bool send_descriptor(const Socket& socket, int descriptor) {
  DescriptorMessage carrier;
  cmsghdr* header = CMSG_FIRSTHDR(&carrier.message());
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  return sendmsg(socket.fd(), &carrier.message(), MSG_NOSIGNAL) == 1;
}

// kNotFound where nothing has come.
Result<Socket> receive_descriptor(const Socket& socket) {
  DescriptorMessage carrier;
  const ssize_t got = recvmsg(socket.fd(), &carrier.message(), MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return not_found("nothing has come");
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&carrier.message()) : nullptr;
  std::vector<Socket> descriptors;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    // Where one is expected, the alignment leaves room for a second.
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, reinterpret_cast<const char*>(header) + at, sizeof(int));
      descriptors.emplace_back(descriptor);
    }
  }
  if (descriptors.size() != 1) return unavailable("the rank that holds the host's shared memory has not sent it");
  return std::move(descriptors[0]);
}

}  // namespace

HostMemoryExchange::HostMemoryExchange(EventLoop& loop, std::string name, int world_size, Done done)
    : loop_(loop), name_(std::move(name)), world_size_(world_size), done_(std::move(done)) {}

HostMemoryExchange::~HostMemoryExchange() {
  stop_serving();
  loop_.forget(connection_.fd());
}

void HostMemoryExchange::start(Clock::time_point now, std::chrono::milliseconds patience) {
  deadline_ = now + patience;
  attempt(now);
}

void HostMemoryExchange::attempt(Clock::time_point now) {
  next_attempt_ = Clock::time_point::max();
  Result<Socket> listener = listen_on_name(name_);
  if (listener.ok()) {
    Result<std::shared_ptr<HostMemory>> memory = HostMemory::create(world_size_);
    if (!memory.ok()) return finish(memory.status());
    memory_ = *memory;
    listener_ = std::move(*listener);
    loop_.watch(listener_.fd(), EPOLLIN, [this](uint32_t) { serve(); });
    return finish(memory_);
  }
  if (listener.status().code() != StatusCode::kFailedPrecondition) return finish(listener.status());
  if (now >= deadline_) return finish(deadline_exceeded("the rank that holds " + name_ + " does not answer"));
  Result<Socket> connection = connect_to_name(name_);
  if (!connection.ok()) return retry(connection.status());
  const Status peer = check_same_user(*connection);
  if (!peer.ok()) return finish(peer);
  connection_ = std::move(*connection);
  next_attempt_ = deadline_;
  loop_.watch(connection_.fd(), EPOLLIN | EPOLLRDHUP, [this](uint32_t) { receive(); });
}

void HostMemoryExchange::retry(const Status& reason) {
  loop_.forget(connection_.fd());
  connection_.reset();
  const Clock::time_point now = Clock::now();
  if (now >= deadline_) return finish(reason);
  next_attempt_ = now + kRetryPause;
}

void HostMemoryExchange::receive() {
  Result<Socket> descriptor = receive_descriptor(connection_);
  if (!descriptor.ok()) {
    if (descriptor.status().code() != StatusCode::kNotFound) retry(descriptor.status());
    return;
  }
  loop_.forget(connection_.fd());
  connection_.reset();
  finish(HostMemory::adopt(descriptor->release(), world_size_));
}

void HostMemoryExchange::serve() {
  while (true) {
    const Result<Socket> connection = accept_from(listener_);
    if (!connection.ok()) {
      // Without descriptors: the event that was used up comes no second time.
      if (connection.status().code() != StatusCode::kNotFound) next_attempt_ = Clock::now() + kRetryPause * 10;
      return;
    }
    // One that is not of this user gets nothing; one that has gone again needs nothing.
    if (check_same_user(*connection).ok() && !send_descriptor(*connection, memory_->descriptor())) continue;
  }
}

void HostMemoryExchange::on_timer(Clock::time_point now) {
  if (now < next_attempt_) return;
  next_attempt_ = Clock::time_point::max();
  if (listener_.fd() >= 0) return serve();
  if (connection_.fd() >= 0) return retry(deadline_exceeded("the rank that holds " + name_ + " does not answer"));
  if (done_) attempt(now);
}

void HostMemoryExchange::finish(Result<std::shared_ptr<HostMemory>> memory) {
  const Done done = std::exchange(done_, nullptr);
  if (done) done(std::move(memory));
}

void HostMemoryExchange::stop_serving() {
  loop_.forget(listener_.fd());
  listener_.reset();
  memory_.reset();
}

void HostMemoryExchange::close_descriptors() {
  listener_.reset();
  connection_.reset();
}

}  // namespace qx::collectives
