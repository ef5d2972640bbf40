#include "quincunx/collectives/mesh_communicator.h"

#include <algorithm>
#include <new>

#include "quincunx/base/fnv1a.h"
#include "quincunx/collectives/call_checks.h"
#include "quincunx/collectives/transport/shared_arena.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// Longer waits than this would overflow the clock.
constexpr milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

// 0 means all groups.
uint64_t group_id_of(const std::string& name) { return fnv1a(name) | 1; }

// The first error of several checks.
template <typename... Checks>
Status first_error(const Checks&... checks) {
  Status result;
  static_cast<void>(((result = checks, !result.ok()) || ...));
  return result;
}

WorkPtr failed(Status status) { return std::make_shared<OperationState>(std::move(status)); }

std::vector<int64_t> counts_of(std::span<const Buffer> buffers) {
  std::vector<int64_t> counts;
  for (const Buffer& buffer : buffers) counts.push_back(buffer.count);
  return counts;
}

int64_t total_count(std::span<const Buffer> buffers) {
  int64_t total = 0;
  for (const Buffer& buffer : buffers) total += buffer.count;
  return total;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(const Options& options, std::shared_ptr<Store> store) {
  QX_RETURN_IF_ERROR(check_options(options));
  if (store == nullptr && options.world_size > 1) return invalid_argument("store: expected a store, got null");
  QX_ASSIGN_OR_RETURN(std::shared_ptr<Mesh> mesh, Mesh::start(options, std::move(store)));
  std::vector<int> members(static_cast<size_t>(options.world_size));
  for (int r = 0; r < options.world_size; ++r) members[static_cast<size_t>(r)] = r;
  const uint64_t id = group_id_of(options.group_name + "/" + options.generation);
  return std::shared_ptr<Communicator>(new MeshCommunicator(options, std::move(mesh), id, std::move(members)));
}

MeshCommunicator::MeshCommunicator(Options options, std::shared_ptr<Mesh> mesh, uint64_t group_id,
                                   std::vector<int> members)
    : options_(std::move(options)),
      timeout_ms_(std::min(options_.timeout, kLongestTimeout).count()),
      mesh_(std::move(mesh)),
      engine_(mesh_->engine()) {
  Engine::Guard guard(*engine_);
  group_ = std::make_unique<Group>(*engine_, group_id, options_.group_name, std::move(members));
  engine_->add_group(*group_);
  const Status failure = mesh_->failure();
  if (!failure.ok()) group_->fail(failure, false);
}

MeshCommunicator::~MeshCommunicator() {
  if (!engine_->belongs_to_this_process()) {
    // The parent's threads may have been anywhere in this state when it was copied.
    static_cast<void>(group_.release());
    static_cast<void>(new (std::nothrow) std::shared_ptr<Mesh>(mesh_));
    return;
  }
  Engine::Guard guard(*engine_);
  group_->close();
}

void MeshCommunicator::set_timeout(milliseconds timeout) {
  if (timeout.count() > 0) timeout_ms_ = std::min(timeout, kLongestTimeout).count();
}

bool MeshCommunicator::all_members_up() const {
  return std::all_of(group_->members().begin(), group_->members().end(),
                     [&](int rank) { return engine_->peer_state(rank) != Engine::PeerState::kConnecting; });
}

bool MeshCommunicator::ready() const {
  if (!engine_->belongs_to_this_process()) return false;
  Engine::Guard guard(*engine_);
  return all_members_up() && group_->failure().ok();
}

Status MeshCommunicator::wait_ready(milliseconds timeout) {
  if (!engine_->belongs_to_this_process()) return engine_->foreign_process_error();
  mesh_->hurry();
  const milliseconds limit = timeout.count() > 0 ? std::min(timeout, kLongestTimeout) : milliseconds(timeout_ms_);
  const Status waited =
      engine_->wait_until([&] { return all_members_up() || !group_->failure().ok(); }, Clock::now() + limit);
  if (waited.code() == StatusCode::kAborted) {
    return aborted("group '" + options_.group_name + "': the wait for it was interrupted; it goes on connecting");
  }
  Engine::Guard guard(*engine_);
  if (!group_->failure().ok()) return group_->failure();
  if (waited.ok()) return ok_status();
  std::string missing;
  for (int r = 0; r < size(); ++r) {
    if (engine_->peer_state(group_->world_rank(r)) != Engine::PeerState::kConnecting) continue;
    missing += (missing.empty() ? "" : ", ") + group_->describe_peer(r);
  }
  return deadline_exceeded("group '" + group_->name() + "' was not ready within " + std::to_string(limit.count()) +
                           " ms; waiting for " + missing);
}

Progress MeshCommunicator::progress() const {
  Progress progress;
  if (!engine_->belongs_to_this_process()) {
    progress.phase = Phase::kFailed;
    progress.error = engine_->foreign_process_error().message();
    return progress;
  }
  Engine::Guard guard(*engine_);
  for (int r = 0; r < size(); ++r) {
    const int rank = group_->world_rank(r);
    const bool has_come = engine_->peer_state(rank) == Engine::PeerState::kUp || engine_->peer_has_left(rank);
    (has_come ? progress.ranks_seen : progress.ranks_missing).push_back(r);
  }
  const Status& failure = group_->failure();
  if (!failure.ok()) {
    progress.phase = failure.code() == StatusCode::kAborted ? Phase::kAborted : Phase::kFailed;
    progress.error = failure.message();
  } else {
    progress.phase = all_members_up() ? Phase::kReady : Phase::kConnecting;
  }
  return progress;
}

Result<std::shared_ptr<Communicator>> MeshCommunicator::split(std::span<const int> members, const std::string& name) {
  if (!engine_->belongs_to_this_process()) return engine_->foreign_process_error();
  std::vector<int> world_ranks;
  std::string key;
  Options options = options_;
  options.rank = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string label = "members[" + std::to_string(i) + "]";
    QX_RETURN_IF_ERROR(check_rank(label.c_str(), members[i], size()));
    if (members[i] == options_.rank) options.rank = static_cast<int>(i);
    const int world_rank = group_->world_rank(members[i]);
    if (std::find(world_ranks.begin(), world_ranks.end(), world_rank) != world_ranks.end()) {
      return invalid_argument(label + ": expected each rank once, got " + std::to_string(members[i]) + " again");
    }
    world_ranks.push_back(world_rank);
    key += std::to_string(members[i]) + "/";
  }
  key += name;  // last: a name may contain anything
  if (options.rank < 0) {
    return invalid_argument("members: expected this rank, " + std::to_string(options_.rank) + ", among them");
  }
  options.world_size = static_cast<int>(members.size());
  options.group_name = name;
  options.timeout = milliseconds(timeout_ms_);
  uint64_t nth = 0;
  {
    Engine::Guard guard(*engine_);
    nth = num_splits_[key]++;
  }
  const uint64_t id = group_id_of(std::to_string(group_->id()) + "/" + key + "/" + std::to_string(nth));
  return std::shared_ptr<Communicator>(new MeshCommunicator(options, mesh_, id, std::move(world_ranks)));
}

Result<OperationPtr> MeshCommunicator::begin(const Call& call, int peer, milliseconds timeout) {
  if (!engine_->belongs_to_this_process()) return engine_->foreign_process_error();
  if (timeout.count() < 0) {
    return invalid_argument("timeout: expected 0 or more, got " + std::to_string(timeout.count()) + " ms");
  }
  mesh_->hurry();
  Counter& counter = counters_[static_cast<size_t>(call.operation)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.bytes.fetch_add(call.count * dtype_size_bytes(call.dtype), std::memory_order_relaxed);
  OperationState::Description description{
      call, options_.group_name, peer, Clock::now(),
      timeout.count() > 0 ? std::min(timeout, kLongestTimeout) : milliseconds(timeout_ms_)};
  return std::make_shared<OperationState>(engine_, group_.get(), std::move(description));
}

WorkPtr MeshCommunicator::collective(const Status& check, const Call& call, std::vector<Buffer> inputs,
                                     std::vector<Buffer> outputs, milliseconds timeout) {
  if (!check.ok()) return failed({check.code(), std::string(operation_name(call.operation)) + ": " + check.message()});
  Result<OperationPtr> operation = begin(call, -1, timeout);
  if (!operation.ok()) return failed(operation.status());
  auto exchange = std::make_unique<DirectExchange>(call, std::move(inputs), std::move(outputs), options_.rank, size());
  Engine::Guard guard(*engine_);
  // Peers that have given up meanwhile have said so.
  engine_->poll();
  if (!group_->failure().ok()) return failed(group_->failure());
  engine_->count_started();
  group_->enqueue(*operation, std::move(exchange));
  (*operation)->record();
  if (!(*operation)->is_completed()) engine_->wake_helper();
  return *operation;
}

WorkPtr MeshCommunicator::pairwise(const Status& check, Operation kind, const Buffer& buffer, int peer, int tag,
                                   milliseconds timeout) {
  if (!check.ok()) return failed({check.code(), std::string(operation_name(kind)) + ": " + check.message()});
  Call call;
  call.operation = kind;
  call.dtype = buffer.dtype;
  call.count = buffer.count;
  call.root = tag;
  Result<OperationPtr> operation = begin(call, peer, timeout);
  if (!operation.ok()) return failed(operation.status());
  Engine::Guard guard(*engine_);
  if (!group_->failure().ok()) return failed(group_->failure());
  engine_->count_started();
  if (kind == Operation::kSend)
    group_->point_to_point().send(*operation, buffer);
  else
    group_->point_to_point().receive(*operation, buffer);
  (*operation)->record();
  if (!(*operation)->is_completed()) engine_->wake_helper();
  return *operation;
}

WorkPtr MeshCommunicator::barrier(milliseconds timeout) { return collective(ok_status(), Call(), {}, {}, timeout); }

WorkPtr MeshCommunicator::broadcast(Buffer buffer, int root, milliseconds timeout) {
  return collective(first_error(check_buffer("buffer", buffer), check_rank("root", root, size())),
                    {Operation::kBroadcast, buffer.dtype, {}, root, buffer.count, {}}, {buffer}, {}, timeout);
}

WorkPtr MeshCommunicator::all_reduce(Buffer buffer, Reduction reduction, milliseconds timeout) {
  Status check = check_buffer("buffer", buffer);
  if (check.ok()) check = check_reduction(reduction, buffer.dtype);
  return collective(check, {Operation::kAllReduce, buffer.dtype, reduction, -1, buffer.count, {}}, {buffer}, {},
                    timeout);
}

WorkPtr MeshCommunicator::reduce(Buffer input, Buffer output, int root, Reduction reduction, milliseconds timeout) {
  Status check = first_error(check_buffer("input", input), check_rank("root", root, size()));
  if (check.ok()) check = check_reduction(reduction, input.dtype);
  if (check.ok() && root == options_.rank) {
    check = first_error(check_buffer("output", output), check_same("output", output, "input", input),
                        check_apart("output", {&output, 1}, 0, "input", {&input, 1}, 0));
  }
  return collective(check, {Operation::kReduce, input.dtype, reduction, root, input.count, {}}, {input}, {output},
                    timeout);
}

WorkPtr MeshCommunicator::all_gather(Buffer input, std::vector<Buffer> outputs, milliseconds timeout) {
  Status check = first_error(check_buffer("input", input), check_buffers("outputs", outputs, size(), input.dtype));
  const auto own = static_cast<size_t>(options_.rank);
  if (check.ok()) check = check_same("outputs[rank]", outputs[own], "input", input);
  if (check.ok()) check = check_apart("outputs", outputs, own, "input", {&input, 1}, 0);
  return collective(check, {Operation::kAllGather, input.dtype, {}, -1, input.count, counts_of(outputs)}, {input},
                    outputs, timeout);
}

WorkPtr MeshCommunicator::gather(Buffer input, std::vector<Buffer> outputs, int root, milliseconds timeout) {
  Status check = first_error(check_buffer("input", input), check_rank("root", root, size()));
  if (check.ok() && root == options_.rank) {
    check = check_buffers("outputs", outputs, size(), input.dtype);
    const auto own = static_cast<size_t>(root);
    if (check.ok()) check = check_same("outputs[rank]", outputs[own], "input", input);
    if (check.ok()) check = check_apart("outputs", outputs, own, "input", {&input, 1}, 0);
  } else if (check.ok() && !outputs.empty()) {
    check = invalid_argument("outputs: expected none but on the root, got " + std::to_string(outputs.size()));
  }
  return collective(check, {Operation::kGather, input.dtype, {}, root, input.count, counts_of(outputs)}, {input},
                    outputs, timeout);
}

WorkPtr MeshCommunicator::scatter(std::vector<Buffer> inputs, Buffer output, int root, milliseconds timeout) {
  Status check = first_error(check_buffer("output", output), check_rank("root", root, size()));
  if (check.ok() && root == options_.rank) {
    check = check_buffers("inputs", inputs, size(), output.dtype);
    const auto own = static_cast<size_t>(root);
    if (check.ok()) check = check_same("inputs[rank]", inputs[own], "output", output);
    if (check.ok()) check = check_apart("output", {&output, 1}, 0, "inputs", inputs, own);
  } else if (check.ok() && !inputs.empty()) {
    check = invalid_argument("inputs: expected none but on the root, got " + std::to_string(inputs.size()));
  }
  return collective(check, {Operation::kScatter, output.dtype, {}, root, output.count, counts_of(inputs)}, inputs,
                    {output}, timeout);
}

WorkPtr MeshCommunicator::reduce_scatter(std::vector<Buffer> inputs, Buffer output, Reduction reduction,
                                         milliseconds timeout) {
  Status check = first_error(check_buffer("output", output), check_buffers("inputs", inputs, size(), output.dtype));
  const auto own = static_cast<size_t>(options_.rank);
  if (check.ok()) check = check_same("inputs[rank]", inputs[own], "output", output);
  if (check.ok()) check = check_apart("output", {&output, 1}, 0, "inputs", inputs, own);
  if (check.ok()) check = check_reduction(reduction, output.dtype);
  return collective(check, {Operation::kReduceScatter, output.dtype, reduction, -1, output.count, counts_of(inputs)},
                    inputs, {output}, timeout);
}

WorkPtr MeshCommunicator::all_to_all(std::vector<Buffer> inputs, std::vector<Buffer> outputs, milliseconds timeout) {
  const DType dtype = inputs.empty() ? DType::kUInt8 : inputs[0].dtype;
  Status check =
      first_error(check_buffers("inputs", inputs, size(), dtype), check_buffers("outputs", outputs, size(), dtype));
  const auto own = static_cast<size_t>(options_.rank);
  if (check.ok()) check = check_same("outputs[rank]", outputs[own], "inputs[rank]", inputs[own]);
  if (check.ok()) check = check_apart("outputs", outputs, own, "inputs", inputs, own);
  std::vector<int64_t> counts = counts_of(inputs);
  const std::vector<int64_t> received = counts_of(outputs);
  counts.insert(counts.end(), received.begin(), received.end());
  return collective(check, {Operation::kAllToAll, dtype, {}, -1, total_count(inputs), counts}, inputs, outputs,
                    timeout);
}

WorkPtr MeshCommunicator::send(Buffer buffer, int destination, int tag, milliseconds timeout) {
  Status check = first_error(check_buffer("buffer", buffer), check_rank("destination", destination, size()));
  if (check.ok() && destination == options_.rank) {
    check = invalid_argument("destination: expected another rank, got this one, " + std::to_string(destination));
  }
  return pairwise(check, Operation::kSend, buffer, destination, tag, timeout);
}

WorkPtr MeshCommunicator::recv(Buffer buffer, int source, int tag, milliseconds timeout) {
  Status check = check_buffer("buffer", buffer);
  if (check.ok() && source != -1) check = check_rank("source", source, size());
  if (check.ok() && source == options_.rank) {
    check = invalid_argument("source: expected another rank or -1, got this one, " + std::to_string(source));
  }
  return pairwise(check, Operation::kRecv, buffer, source, tag, timeout);
}

Result<std::shared_ptr<void>> MeshCommunicator::allocate(int64_t size_bytes) {
  constexpr int64_t kLargest = int64_t{1} << 48;
  if (size_bytes < 0 || size_bytes > kLargest) {
    return invalid_argument("size_bytes: expected 0 to 2^48, got " + std::to_string(size_bytes));
  }
  Result<std::shared_ptr<SharedArena>> arena =
      options_.allow_shared_memory ? SharedArena::of_this_process()
                                   : Result<std::shared_ptr<SharedArena>>(unavailable("shared memory is not allowed"));
  if (arena.ok()) {
    Result<std::shared_ptr<void>> shared = (*arena)->allocate(size_bytes);
    if (shared.ok()) {
      shared_bytes_allocated_ += size_bytes;
      return shared;
    }
  }
  constexpr std::align_val_t kAlignment{4096};
  void* memory = ::operator new(static_cast<size_t>(size_bytes), kAlignment, std::nothrow);
  if (memory == nullptr) return resource_exhausted("no memory for " + std::to_string(size_bytes) + " bytes");
  ordinary_bytes_allocated_ += size_bytes;
  return std::shared_ptr<void>(memory, [](void* given) { ::operator delete(given, kAlignment); });
}

void MeshCommunicator::abort(const std::string& reason) {
  if (!engine_->belongs_to_this_process()) return;
  const Status status = aborted("group '" + options_.group_name + "' was aborted: " + reason);
  Engine::Guard guard(*engine_);
  group_->fail(status, true);
  engine_->wake_waiters();
}

std::string MeshCommunicator::statistics_json() const {
  std::string text = "{\"group\": \"";
  for (const char c : options_.group_name) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<uint8_t>(c) < 0x20 ? ' ' : c;
  }
  text += "\", \"rank\": " + std::to_string(options_.rank) + ", \"world_size\": " + std::to_string(size());
  int shared = 0, tcp = 0, tls = 0;
  int64_t in_place = 0;
  if (engine_->belongs_to_this_process()) {
    Engine::Guard guard(*engine_);
    in_place = group_->bytes_read_in_place();
    for (const int rank : group_->members()) {
      shared += engine_->transport_of(rank) == "shared memory";
      tls += engine_->transport_of(rank) == "TLS";
      tcp += engine_->transport_of(rank) == "TCP";
    }
  }
  text += ", \"shared_memory_peers\": " + std::to_string(shared) + ", \"tcp_peers\": " + std::to_string(tcp) +
          ", \"tls_peers\": " + std::to_string(tls) +
          ", \"connections_dropped\": " + std::to_string(mesh_->num_dropped()) +
          ", \"bytes_read_in_place\": " + std::to_string(in_place) +
          ", \"shared_bytes_allocated\": " + std::to_string(shared_bytes_allocated_) +
          ", \"ordinary_bytes_allocated\": " + std::to_string(ordinary_bytes_allocated_) + ", \"operations\": {";
  bool first = true;
  for (size_t i = 0; i < std::size(counters_); ++i) {
    if (counters_[i].calls == 0) continue;
    text += (first ? "\"" : ", \"") + std::string(operation_name(static_cast<Operation>(i))) +
            "\": {\"calls\": " + std::to_string(counters_[i].calls) +
            ", \"bytes\": " + std::to_string(counters_[i].bytes) + "}";
    first = false;
  }
  return text + "}}";
}

}  // namespace qx::collectives
