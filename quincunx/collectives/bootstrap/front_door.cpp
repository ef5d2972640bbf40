#include "quincunx/collectives/bootstrap/front_door.h"

#include <sys/resource.h>

#include <algorithm>

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// A stranger that has not proven who it is after this long is dropped; the oldest goes where there are too many.
constexpr milliseconds kProofTime{10000};
constexpr size_t kMostStrangers = 4096;
// Of the descriptors that the process may have; the others are the program's.
constexpr size_t kPartOfDescriptors = 4;
// Before another accept when there was no descriptor for one.
constexpr milliseconds kAcceptPause{20};

size_t most_strangers() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostStrangers;
  return std::clamp<size_t>(limit.rlim_cur / kPartOfDescriptors, 1, kMostStrangers);
}

}  // namespace

void FrontDoor::add(Socket socket, bool listens) {
  doors_.push_back({std::move(socket), listens});
  if (listens) watch(doors_.back());
}

void FrontDoor::watch(const Door& door) {
  loop_.watch(door.socket.fd(), EPOLLIN, [this, fd = door.socket.fd()](uint32_t) { accept_all(fd); });
}

Status FrontDoor::open_all() {
  for (Door& door : doors_) {
    if (door.listens) continue;
    QX_RETURN_IF_ERROR(start_listening(door.socket));
    door.listens = true;
    watch(door);
  }
  return ok_status();
}

void FrontDoor::close() {
  for (const Door& door : doors_) loop_.forget(door.socket.fd());
  doors_.clear();
}

void FrontDoor::drop(const Stream* stream) {
  std::erase_if(strangers_, [stream](const auto& stranger) { return stranger.get() == stream; });
}

void FrontDoor::accept_all(int listener) {
  const auto door = std::find_if(doors_.begin(), doors_.end(),
                                 [listener](const Door& candidate) { return candidate.socket.fd() == listener; });
  if (door == doors_.end()) return;
  while (true) {
    Result<Socket> socket = accept_from(door->socket);
    if (!socket.ok()) {
      // Without descriptors: the event that was used up comes no second time.
      if (socket.status().code() != StatusCode::kNotFound) next_accept_ = Clock::now() + kAcceptPause;
      return;
    }
    if (strangers_.size() >= most_strangers()) {
      strangers_.erase(strangers_.begin());
      ++num_dropped_;
    }
    auto stream = Stream::accept(loop_, std::move(*socket), proof_for_, Clock::now() + kProofTime, {});
    Stream* raw = stream.get();
    Stream::Events events;
    events.opened = [this, raw] {
      std::shared_ptr<Stream> opened = raw->shared_from_this();
      drop(raw);
      taker_(std::move(opened));
    };
    events.closed = [this, raw](std::string_view reason) {
      ++num_dropped_;
      if (raw->peer_rank() >= 0)
        refusal_ = "of connections that did not prove themselves, the last: " + std::string(reason);
      drop(raw);
    };
    stream->set_events(std::move(events));
    strangers_.push_back(std::move(stream));
  }
}

FrontDoor::Clock::time_point FrontDoor::next_timer() const {
  return strangers_.empty() ? next_accept_ : std::min(next_accept_, strangers_.front()->deadline());
}

void FrontDoor::on_timer(Clock::time_point now) {
  while (!strangers_.empty() && strangers_.front()->deadline() <= now) {
    strangers_.erase(strangers_.begin());
    ++num_dropped_;
  }
  if (next_accept_ > now) return;
  next_accept_ = Clock::time_point::max();
  for (size_t i = 0; i < doors_.size(); ++i) {
    if (doors_[i].listens) accept_all(doors_[i].socket.fd());
  }
}

void FrontDoor::close_descriptors() {
  for (Door& door : doors_) door.socket.reset();
  for (const auto& stranger : strangers_) stranger->close_descriptor();
}

}  // namespace qx::collectives
