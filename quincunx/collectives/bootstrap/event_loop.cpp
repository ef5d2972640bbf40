#include "quincunx/collectives/bootstrap/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace qx::collectives {
namespace {

constexpr size_t kEventsAtOnce = 256;
constexpr int kWakeDescriptor = -1;

uint64_t tag_of(int fd, uint32_t serial) { return uint64_t{serial} << 32 | static_cast<uint32_t>(fd); }

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (loop->epoll_.fd() < 0 || loop->wake_.fd() < 0) return resource_exhausted("no descriptors for an event loop");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = tag_of(kWakeDescriptor, 0);
  epoll_ctl(loop->epoll_.fd(), EPOLL_CTL_ADD, loop->wake_.fd(), &event);
  loop->events_.resize(kEventsAtOnce);
  return loop;
}

void EventLoop::wake() {
  const uint64_t one = 1;
  if (wake_.fd() >= 0 && write(wake_.fd(), &one, sizeof(one)) < 0) return;  // full: it is awake already
}

void EventLoop::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  wake();
}

void EventLoop::run_posted() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  if (tasks.empty()) return;
  const auto held = hold();
  for (const auto& task : tasks) task();
}

void EventLoop::watch(int fd, uint32_t events, Handler handler) {
  if (watched_.size() <= static_cast<size_t>(fd)) watched_.resize(static_cast<size_t>(fd) + 1);
  Watched& watched = watched_[static_cast<size_t>(fd)];
  const int operation = watched.handler ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  watched = {std::make_shared<Handler>(std::move(handler)), next_serial_++};
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.u64 = tag_of(fd, watched.serial);
  epoll_ctl(epoll_.fd(), operation, fd, &event);
}

void EventLoop::forget(int fd) {
  if (fd < 0 || watched_.size() <= static_cast<size_t>(fd) || !watched_[static_cast<size_t>(fd)].handler) return;
  watched_[static_cast<size_t>(fd)] = {};
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::run_until(Clock::time_point limit) {
  run_posted();
  const Clock::time_point now = Clock::now();
  const auto left =
      limit <= now
          ? std::chrono::milliseconds(0)
          : std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(limit - now, std::chrono::hours(1)));
  const int count =
      epoll_wait(epoll_.fd(), events_.data(), static_cast<int>(events_.size()), static_cast<int>(left.count()));
  const auto held = hold();
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events_[static_cast<size_t>(i)];
    const int fd = static_cast<int>(event.data.u64 & 0xffffffff);
    if (fd == kWakeDescriptor) {
      uint64_t wakes = 0;
      if (read(wake_.fd(), &wakes, sizeof(wakes)) < 0) continue;
      continue;
    }
    const Watched watched = watched_[static_cast<size_t>(fd)];  // a copy: the handler may go while it runs
    if (watched.handler && watched.serial == event.data.u64 >> 32) (*watched.handler)(event.events);
  }
  run_posted();
}

void EventLoop::close_descriptors() {
  epoll_.reset();
  wake_.reset();
}

}  // namespace qx::collectives
