#include "quincunx/collectives/bootstrap/mesh.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "quincunx/base/fnv1a.h"
#include "quincunx/collectives/bootstrap/fork_registry.h"
#include "quincunx/collectives/bootstrap/random_bits.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// How long a destructor lets the last bytes leave, and then waits for the others.
constexpr milliseconds kDrainTime{1000};
constexpr milliseconds kLeaveTime{2000};
// Addresses of other interfaces that are tried, at most: each takes a descriptor of the 16 that docs/mccl.md promises.
constexpr size_t kMostInterfaces = 3;

// Whose thread this is.
thread_local const Mesh* mesh_of_this_thread = nullptr;

void join(const std::unique_ptr<std::thread>& thread) {
  if (thread) thread->join();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Mesh::Mesh(const Options& options, std::shared_ptr<Store> store, RankRecord own)
    : options_(options),
      store_(std::move(store)),
      engine_(std::make_shared<Engine>(options.rank, options.world_size)),
      own_(std::move(own)),
      chosen_interface_(options.interface_address.empty() ? variable("QX_MCCL_INTERFACE") : options.interface_address),
      denied_interfaces_(variable("QX_MCCL_INTERFACE_DENY")),
      job_id_(fnv1a(options.group_name + "/" + options.generation)),
      instance_(random_bits()) {}

// The last communicator may go in a callback of an operation, on a thread of the mesh, which must not end itself.
std::shared_ptr<Mesh> Mesh::make(const Options& options, std::shared_ptr<Store> store, RankRecord own) {
  const auto destroy = [](Mesh* mesh) {
    if (mesh_of_this_thread == mesh)
      std::thread([mesh] { delete mesh; }).detach();
    else
      delete mesh;
  };
  return {new Mesh(options, std::move(store), std::move(own)), destroy};
}

// Threads of a library take no signals: they are the program's.
std::unique_ptr<std::thread> Mesh::start_thread(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = std::make_unique<std::thread>([this, body = std::move(body)] {
    mesh_of_this_thread = this;
    body();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

Status Mesh::bind_doors() {
  std::vector<std::string> external;
  if (!chosen_interface_.empty()) {
    external.push_back(chosen_interface_);
  } else {
    QX_ASSIGN_OR_RETURN(external, external_addresses(denied_interfaces_));
    if (external.size() > kMostInterfaces) external.resize(kMostInterfaces);
  }
  own_.takes_external = !chosen_interface_.empty();
  if (options_.interface_address.empty()) {
    Result<Listener> loopback = listen_on("127.0.0.1");
    if (!loopback.ok()) loopback = listen_on("::1");
    QX_RETURN_IF_ERROR(loopback.status());
    own_.loopback_endpoints.push_back(loopback->endpoint.to_string());
    front_door_->add(std::move(loopback->socket), true);
  }
  for (const std::string& address : external) {
    // A port is taken at once, because the record must name it; nobody is let in before another host is known of.
    Result<Listener> door = own_.takes_external ? listen_on(address) : bind_to(address);
    if (!door.ok() && own_.takes_external) return door.status();
    if (!door.ok()) continue;
    own_.external_endpoints.push_back(door->endpoint.to_string());
    front_door_->add(std::move(door->socket), own_.takes_external);
  }
  return ok_status();
}

Result<std::shared_ptr<Mesh>> Mesh::start(const Options& options, std::shared_ptr<Store> store) {
  RankRecord own;
  own.rank = options.rank;
  own.world_size = options.world_size;
  own.token = random_token();
  if (options.world_size == 1) {
    std::shared_ptr<Mesh> alone = make(options, nullptr, std::move(own));
    alone->phase_ = Phase::kReady;
    return alone;
  }
  std::shared_ptr<Mesh> mesh = make(options, std::move(store), std::move(own));
  Mesh* self = mesh.get();
  mesh->credentials_ = options.credentials;
  if (!mesh->credentials_) {
    QX_ASSIGN_OR_RETURN(Credentials credentials, Credentials::from_environment());
    mesh->credentials_ = std::make_shared<const Credentials>(std::move(credentials));
  }
  QX_ASSIGN_OR_RETURN(mesh->loop_, EventLoop::create());
  mesh->front_door_ = std::make_unique<FrontDoor>(
      *mesh->loop_, [self](Purpose purpose) { return self->proof_for(purpose); },
      [self](std::shared_ptr<Stream> stream) { self->take_stream(std::move(stream)); });
  if (!mesh->chosen_interface_.empty()) QX_RETURN_IF_ERROR(mesh->bind_doors());
  register_for_fork(self);
  mesh->loop_thread_ = mesh->start_thread([self] { self->run_loop(); });
  return mesh;
}

void Mesh::hurry() {
  if (hurried_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(mutex_);
    hurried_ = true;
  }
  changed_.notify_all();
}

Mesh::~Mesh() {
  if (!engine_->belongs_to_this_process()) {
    // The parent's threads may have been anywhere in these when they were copied.
    static_cast<void>(links_.release());
    static_cast<void>(tree_.release());
    static_cast<void>(exchange_.release());
    static_cast<void>(front_door_.release());
    static_cast<void>(loop_.release());
    return;
  }
  unregister_for_fork(this);
  {
    const Clock::time_point limit = Clock::now() + kDrainTime;
    Engine::Guard guard(*engine_);
    if (links_) links_->leave();
    engine_->say_goodbye();
    while (engine_->has_unsent() && Clock::now() < limit) {
      guard.lock().unlock();
      std::this_thread::sleep_for(milliseconds(1));
      guard.lock().lock();
      engine_->flush();
    }
    engine_->stop_helper();
    engine_->dismiss_driver(guard);
  }
  leave_ = true;
  hurry();
  if (loop_) {
    loop_->wake();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLeaveTime, [this] { return has_left_.load() || !loop_thread_; });
  }
  {
    // Under the lock: the store's thread may be between its look and its wait.
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (store_) store_->close();
  if (loop_) loop_->wake();
  join(loop_thread_);
  join(store_thread_);
  join(helper_thread_);
  if (links_) links_->finish(Clock::now() + kDrainTime);
}

void Mesh::hold_for_fork() { held_for_fork_ = loop_->hold(); }

void Mesh::release_after_fork() { held_for_fork_ = {}; }

void Mesh::abandon_in_child() {
  // The thread that would give it back is the parent's.
  static_cast<void>(held_for_fork_.release());
  if (links_) links_->close_descriptors();
  if (tree_) tree_->close_descriptors();
  if (exchange_) exchange_->close_descriptors();
  if (front_door_) front_door_->close_descriptors();
  if (loop_) loop_->close_descriptors();
  static_cast<void>(store_thread_.release());
  static_cast<void>(loop_thread_.release());
  static_cast<void>(helper_thread_.release());
}

Status Mesh::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Mesh::fail(const Status& status) {
  std::string text = "group '" + options_.group_name + "': " + status.message();
  Status named;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kConnecting) return;
    // Whoever has left or died may have done so because of them.
    if (status.code() == StatusCode::kUnavailable && !missing_.empty()) {
      text += (missing_.count() == 1 ? "; not seen so far: rank " : "; not seen so far: ranks ") + missing_.to_string();
    }
    named = {status.code(), std::move(text)};
    phase_ = status.code() == StatusCode::kAborted ? Phase::kAborted : Phase::kFailed;
    failure_ = named;
  }
  changed_.notify_all();
  Engine::Guard guard(*engine_);
  engine_->fail_all(named);
  engine_->wake_waiters();
}

bool Mesh::is_root() const {
  const int num_roots = default_num_roots(options_.world_size);
  for (int i = 0; i < num_roots; ++i) {
    if (root_rank(i, options_.world_size, num_roots) == options_.rank) return true;
  }
  return false;
}

TreeOptions Mesh::tree_options() const {
  TreeOptions tree;
  tree.rank = options_.rank;
  tree.world_size = options_.world_size;
  tree.job_id = job_id_;
  tree.generation = fnv1a(options_.generation) >> 1;  // the node takes 63 bits
  tree.instance = instance_;
  tree.pid = own_.pid;
  tree.num_roots = default_num_roots(options_.world_size);
  tree.host_endpoint = host_name_ + "-host";
  tree.local_endpoint = host_name_ + "-" + std::to_string(options_.rank) + "-" + std::to_string(instance_ % 1000000);
  tree.endpoints = own_.external_endpoints;
  tree.endpoints.insert(tree.endpoints.end(), own_.loopback_endpoints.begin(), own_.loopback_endpoints.end());
  const std::string record = own_.encode();
  const auto bytes = std::as_bytes(std::span(record));
  tree.record.assign(bytes.begin(), bytes.end());
  tree.timeout = options_.timeout;
  return tree;
}

}  // namespace qx::collectives
