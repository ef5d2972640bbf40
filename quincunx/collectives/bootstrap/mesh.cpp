#include "quincunx/collectives/bootstrap/mesh.h"

#include <linux/sockios.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "quincunx/collectives/bootstrap/fork_registry.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// One look into the store; also how late an end of the store thread can be.
constexpr milliseconds kFetchSlice{20};
constexpr milliseconds kStorePause{20};
// How long a destructor lets the last bytes leave.
constexpr milliseconds kDrainTime{1000};
uint64_t hash_text(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// Threads of a library take no signals: they are the program's.
std::unique_ptr<std::thread> start_thread(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = std::make_unique<std::thread>(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

void join(const std::unique_ptr<std::thread>& thread) {
  if (thread) thread->join();
}

}  // namespace

Mesh::Mesh(const Options& options, std::shared_ptr<Store> store, PeerRecord own)
    : options_(options),
      store_(std::move(store)),
      engine_(std::make_shared<Engine>(options.rank, options.world_size)),
      job_id_(hash_text(options.group_name + "/" + options.generation + "/" + std::to_string(options.world_size))),
      rendezvous_(std::move(own)),
      sockets_(static_cast<size_t>(options.world_size)),
      tcp_links_(static_cast<size_t>(options.world_size)) {}

// The last communicator may go in a callback of an operation, on a thread of the mesh, which must not end itself.
std::shared_ptr<Mesh> Mesh::make(const Options& options, std::shared_ptr<Store> store, PeerRecord own) {
  const auto destroy = [](Mesh* mesh) {
    if (mesh->is_own_thread())
      std::thread([mesh] { delete mesh; }).detach();
    else
      delete mesh;
  };
  return {new Mesh(options, std::move(store), std::move(own)), destroy};
}

bool Mesh::is_own_thread() const {
  const auto is_current = [](const std::unique_ptr<std::thread>& thread) {
    return thread && thread->get_id() == std::this_thread::get_id();
  };
  return is_current(store_thread_) || is_current(socket_thread_) || is_current(helper_thread_);
}

Result<std::shared_ptr<Mesh>> Mesh::start(const Options& options, std::shared_ptr<Store> store) {
  PeerRecord own = describe_this_host();
  own.rank = options.rank;
  own.world_size = options.world_size;
  own.token = random_token();
  if (options.world_size == 1) {
    std::shared_ptr<Mesh> alone = make(options, nullptr, std::move(own));
    alone->phase_ = Phase::kReady;
    return alone;
  }
  own.is_external = !options.interface_address.empty();
  QX_ASSIGN_OR_RETURN(Listener listener, listen_on(own.is_external ? options.interface_address : "127.0.0.1"));
  own.endpoint = listener.endpoint.to_string();
  std::unique_ptr<Segment> segment;
  if (options.allow_shared_memory) {
    // Without it the ranks use TCP, and statistics_json says so.
    auto created = Segment::create(options.world_size, random_bits());
    if (created.ok()) segment = std::move(*created);
  }
  if (segment) own.segment = segment->address();
  std::shared_ptr<Mesh> mesh = make(options, std::move(store), std::move(own));
  mesh->segment_ = std::move(segment);
  if (mesh->segment_) mesh->engine_->use_doorbell(mesh->segment_->doorbell());
  mesh->listeners_.push_back(std::move(listener.socket));
  mesh->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  mesh->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (mesh->epoll_.fd() < 0 || mesh->wake_.fd() < 0) return resource_exhausted("no descriptors for an event loop");
  register_for_fork(mesh.get());
  Mesh* self = mesh.get();
  mesh->socket_thread_ = start_thread([self] { self->run_sockets(); });
  mesh->store_thread_ = start_thread([self] { self->run_store(); });
  if (mesh->segment_) mesh->helper_thread_ = start_thread([engine = mesh->engine_] { engine->run_helper(); });
  return mesh;
}

Mesh::~Mesh() {
  if (!engine_->belongs_to_this_process()) return;
  unregister_for_fork(this);
  {
    Engine::Guard guard(*engine_);
    engine_->say_goodbye();
    const Clock::time_point limit = Clock::now() + kDrainTime;
    while (engine_->has_unsent() && Clock::now() < limit) {
      guard.lock().unlock();
      std::this_thread::sleep_for(milliseconds(1));
      guard.lock().lock();
      engine_->flush();
    }
    engine_->stop_helper();
    engine_->dismiss_driver(guard);
  }
  stop_ = true;
  changed_.notify_all();
  wake_sockets();
  join(store_thread_);
  join(socket_thread_);
  join(helper_thread_);
  // Closing with unread input resets the connection and loses what is still to be acknowledged.
  const Clock::time_point limit = Clock::now() + kDrainTime;
  for (const Socket& socket : sockets_) {
    if (socket.fd() < 0) continue;
    shutdown(socket.fd(), SHUT_WR);
    int unacknowledged = 0;
    while (ioctl(socket.fd(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 1 && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
}

void Mesh::abandon_in_child() {
  for (Socket& socket : sockets_) socket.reset();
  for (Socket& listener : listeners_) listener.reset();
  epoll_.reset();
  wake_.reset();
  if (segment_) segment_->close_descriptor();
  static_cast<void>(store_thread_.release());
  static_cast<void>(socket_thread_.release());
  static_cast<void>(helper_thread_.release());
}

Status Mesh::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Mesh::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kConnecting) return;
    phase_ = status.code() == StatusCode::kAborted ? Phase::kAborted : Phase::kFailed;
    failure_ = status;
  }
  changed_.notify_all();
  Engine::Guard guard(*engine_);
  engine_->fail_all(status);
  engine_->wake_waiters();
}

std::string Mesh::key(const char* kind, int rank) const {
  return "qx.mccl/" + options_.group_name + "/" + options_.generation + "/" + kind + "/" + std::to_string(rank);
}

// --- the store thread

bool Mesh::publish(const std::string& key, const std::string& value) {
  while (!stop_) {
    const Status status = store_->set(key, value);
    if (status.ok()) return true;
    std::unique_lock lock(mutex_);
    rendezvous_.on_store_error(status.message());
    if (phase_ != Phase::kConnecting) return false;
    changed_.wait_for(lock, kStorePause);
  }
  return false;
}

void Mesh::fetch(const Rendezvous::Fetch& wanted) {
  const Result<std::string> value = store_->get(key(wanted.external ? "external" : "record", wanted.rank), kFetchSlice);
  Status status;
  {
    std::unique_lock lock(mutex_);
    if (!value.ok()) {
      const bool absent =
          value.status().code() == StatusCode::kDeadlineExceeded || value.status().code() == StatusCode::kNotFound;
      rendezvous_.on_store_error(absent ? "" : value.status().message());
      // A store that answers at once must not be asked in a busy loop.
      changed_.wait_for(lock, milliseconds(2));
      return;
    }
    status =
        wanted.external ? rendezvous_.on_external(wanted.rank, *value) : rendezvous_.on_record(wanted.rank, *value);
  }
  if (!status.ok()) fail({status.code(), "group '" + options_.group_name + "': " + status.message()});
  wake_sockets();
}

void Mesh::run_store() {
  if (!publish(key("record", options_.rank), rendezvous_.own().encode())) return;
  while (!stop_) {
    std::optional<Rendezvous::Fetch> wanted;
    bool external = false;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ == Phase::kFailed || phase_ == Phase::kAborted || rendezvous_.store_is_done()) return;
      external = rendezvous_.take_publish_external();
      wanted = rendezvous_.next_fetch();
    }
    if (external) {
      const char* chosen = std::getenv("QX_MCCL_INTERFACE");
      const Result<std::string> address =
          chosen != nullptr ? Result<std::string>(std::string(chosen)) : first_external_address();
      Result<Listener> listener = address.ok() ? listen_on(*address) : Result<Listener>(address.status());
      if (!listener.ok()) return fail(listener.status());
      const std::string endpoint = listener->endpoint.to_string();
      {
        const std::lock_guard lock(mutex_);
        listeners_.push_back(std::move(listener->socket));
      }
      wake_sockets();
      publish(key("external", options_.rank), endpoint);
    }
    if (wanted) fetch(*wanted);
  }
}

void Mesh::wake_sockets() {
  const uint64_t one = 1;
  if (wake_.fd() >= 0 && write(wake_.fd(), &one, sizeof(one)) < 0) return;  // full: it is awake already
}

}  // namespace qx::collectives
