#include "quincunx/collectives/quincunx_mccl.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "quincunx/base/c_edge.h"
#include "quincunx/collectives/call_checks.h"
#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/flight_recorder.h"
#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/store/open_store.h"

struct qx_communicator {
  std::shared_ptr<qx::collectives::Communicator> core;
};
struct qx_work {
  qx::collectives::WorkPtr core;
};
struct qx_memory {
  std::shared_ptr<void> core;
};

namespace {

using qx::at_c_edge;
using qx::check_pointer;
using qx::invalid_argument;
using qx::ok_status;
using qx::Result;
using qx::Status;
using qx::collectives::Buffer;
using qx::collectives::Communicator;
using qx::collectives::Credentials;
using qx::collectives::FlightFormat;
using qx::collectives::NamedCredentials;
using qx::collectives::Options;
using qx::collectives::Phase;
using qx::collectives::ReduceOp;
using qx::collectives::Reduction;
using qx::collectives::WorkPtr;
using std::chrono::milliseconds;

static_assert(static_cast<int>(qx::DType::kComplex128) == QX_COMPLEX128);
static_assert(static_cast<int>(ReduceOp::kPreMulSum) == QX_PREMUL_SUM);
static_assert(static_cast<int>(Phase::kAborted) == QX_WAS_ABORTED);
static_assert(static_cast<int>(FlightFormat::kChromeTrace) == QX_FLIGHT_CHROME_TRACE);

// The first version's: up to host_id.
constexpr size_t kSmallestOptions = offsetof(qx_communicator_options, host_id) + sizeof(const char*);

std::string text_of(const char* text) { return text != nullptr ? text : ""; }

Status out_of_range(const char* name, int64_t value, const std::string& expected) {
  return invalid_argument(std::string(name) + ": expected " + expected + ", got " + std::to_string(value));
}

std::optional<std::string> optional_text(const char* text) {
  return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
}

// The caller's fields where it knows of fewer than this library, and all of them where it has set no other.
Result<qx_communicator_options> known_options(const qx_communicator_options* given) {
  QX_RETURN_IF_ERROR(check_pointer("options", given));
  if (given->struct_size < kSmallestOptions) {
    return invalid_argument("options.struct_size: expected sizeof(qx_communicator_options), " +
                            std::to_string(kSmallestOptions) + " or more, got " + std::to_string(given->struct_size));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + sizeof(qx_communicator_options), bytes + given->struct_size,
                  [](unsigned char byte) { return byte != 0; })) {
    return qx::unimplemented("options.struct_size: a field of a later version is set, which this library has not");
  }
  return *given;
}

Result<Options> options_of(const qx_communicator_options& given) {
  Options options;
  options.rank = given.rank;
  options.world_size = given.world_size;
  if (given.group_name != nullptr) options.group_name = given.group_name;
  options.generation = text_of(given.generation);
  if (given.timeout_ms < 0) return out_of_range("options.timeout_ms", given.timeout_ms, "0 or more");
  if (given.timeout_ms > 0) options.timeout = milliseconds(given.timeout_ms);
  options.interface_address = text_of(given.interface_address);
  options.allow_shared_memory = given.forbid_shared_memory == 0;
  options.host_id = text_of(given.host_id);
  const NamedCredentials named{optional_text(given.secret), optional_text(given.secret_file),
                               optional_text(given.tls_certificate_file), optional_text(given.tls_key_file),
                               optional_text(given.tls_authority_file)};
  QX_ASSIGN_OR_RETURN(options.credentials, Credentials::from_named(named, "options."));
  return options;
}

Status create(const qx_communicator_options* given, qx_communicator** communicator) {
  QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
  *communicator = nullptr;
  QX_ASSIGN_OR_RETURN(const qx_communicator_options known, known_options(given));
  QX_ASSIGN_OR_RETURN(const Options options, options_of(known));
  QX_RETURN_IF_ERROR(qx::collectives::check_options(options));
  std::shared_ptr<qx::collectives::Store> store;
  if (options.world_size > 1) {
    QX_RETURN_IF_ERROR(check_pointer("options.address", known.address));
    QX_ASSIGN_OR_RETURN(store, qx::collectives::open_store(known.address, options));
  }
  QX_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> core, Communicator::create(options, std::move(store)));
  *communicator = new qx_communicator{std::move(core)};
  return ok_status();
}

Result<Buffer> buffer_of(const std::string& name, const qx_buffer* buffer) {
  if (buffer == nullptr) return check_pointer(name.c_str(), nullptr);
  if (buffer->dtype < 0 || buffer->dtype > QX_COMPLEX128) {
    return out_of_range((name + ".dtype").c_str(), buffer->dtype, "a qx_dtype");
  }
  return Buffer{buffer->data, buffer->count, static_cast<qx::DType>(buffer->dtype)};
}

Result<std::vector<Buffer>> buffers_of(const std::string& name, const qx_buffer* buffers, int64_t count) {
  if (count < 0 || count > std::numeric_limits<int32_t>::max()) {
    return out_of_range(("num_" + name).c_str(), count, "0 or more, one for each rank at most");
  }
  if (count > 0) QX_RETURN_IF_ERROR(check_pointer(name.c_str(), buffers));
  std::vector<Buffer> list;
  for (int64_t i = 0; i < count; ++i) {
    QX_ASSIGN_OR_RETURN(const Buffer buffer, buffer_of(name + "[" + std::to_string(i) + "]", buffers + i));
    list.push_back(buffer);
  }
  return list;
}

Result<Reduction> reduction_of(const qx_reduction* reduction) {
  if (reduction == nullptr) return Reduction{};
  if (reduction->op < 0 || reduction->op > QX_PREMUL_SUM) {
    return out_of_range("reduction.op", reduction->op, "a qx_reduce_op");
  }
  return Reduction{static_cast<ReduceOp>(reduction->op), reduction->pre_multiplier};
}

// Starts what `body`, given the communicator, returns, and waits for it where the caller takes no work.
template <typename Body>
qx_status start(qx_communicator* communicator, qx_work** work, const Body& body) {
  return at_c_edge([&]() -> Status {
    if (work != nullptr) *work = nullptr;
    QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
    QX_ASSIGN_OR_RETURN(WorkPtr core, body(*communicator->core));
    if (work == nullptr) return core->wait();
    if (core->is_completed() && !core->status().ok()) return core->status();
    *work = new qx_work{std::move(core)};
    return ok_status();
  });
}

Status give_text(const std::string& text, char** given) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return qx::resource_exhausted("no memory for a text");
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *given = copy;
  return ok_status();
}

Result<FlightFormat> format_of(int32_t format) {
  if (format < 0 || format > QX_FLIGHT_CHROME_TRACE) return out_of_range("format", format, "a qx_flight_format");
  return static_cast<FlightFormat>(format);
}

Status progress_of(const qx_communicator* communicator, qx_phase* phase, uint8_t* is_seen, int64_t num_ranks) {
  QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
  QX_RETURN_IF_ERROR(check_pointer("phase", phase));
  const int world_size = communicator->core->options().world_size;
  if (is_seen != nullptr && num_ranks != world_size) {
    return out_of_range("num_ranks", num_ranks, "the world size, " + std::to_string(world_size));
  }
  const auto progress = communicator->core->progress();
  *phase = static_cast<qx_phase>(progress.phase);
  if (is_seen == nullptr) return ok_status();
  std::fill_n(is_seen, world_size, uint8_t{0});
  for (const int rank : progress.ranks_seen) is_seen[rank] = 1;
  return ok_status();
}

Status split(qx_communicator* communicator, const int32_t* members, int64_t num_members, const char* name,
             qx_communicator** group) {
  QX_RETURN_IF_ERROR(check_pointer("group", group));
  *group = nullptr;
  QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
  QX_RETURN_IF_ERROR(check_pointer("members", members));
  QX_RETURN_IF_ERROR(check_pointer("name", name));
  const int world_size = communicator->core->options().world_size;
  if (num_members < 1 || num_members > world_size) {
    return out_of_range("num_members", num_members, "1 to " + std::to_string(world_size));
  }
  QX_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> core,
                      communicator->core->split({members, static_cast<size_t>(num_members)}, name));
  *group = new qx_communicator{std::move(core)};
  return ok_status();
}

Status check_time(int64_t timeout_ms) {
  return timeout_ms >= 0 ? ok_status() : out_of_range("timeout_ms", timeout_ms, "0 or more");
}

}  // namespace

qx_status qx_communicator_create(const qx_communicator_options* options, qx_communicator** communicator) {
  return at_c_edge([&] { return create(options, communicator); });
}

void qx_communicator_destroy(qx_communicator* communicator) { delete communicator; }

int32_t qx_communicator_rank(const qx_communicator* communicator) {
  return communicator != nullptr ? communicator->core->options().rank : -1;
}

int32_t qx_communicator_world_size(const qx_communicator* communicator) {
  return communicator != nullptr ? communicator->core->options().world_size : -1;
}

qx_status qx_communicator_set_timeout(qx_communicator* communicator, int64_t timeout_ms) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
    if (timeout_ms <= 0) return out_of_range("timeout_ms", timeout_ms, "1 or more");
    communicator->core->set_timeout(milliseconds(timeout_ms));
    return ok_status();
  });
}

int32_t qx_communicator_ready(const qx_communicator* communicator) {
  return communicator != nullptr && communicator->core->ready() ? 1 : 0;
}

qx_status qx_communicator_wait_ready(qx_communicator* communicator, int64_t timeout_ms) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
    QX_RETURN_IF_ERROR(check_time(timeout_ms));
    return communicator->core->wait_ready(milliseconds(timeout_ms));
  });
}

qx_status qx_communicator_progress(const qx_communicator* communicator, qx_phase* phase, uint8_t* is_seen,
                                   int64_t num_ranks) {
  return at_c_edge([&] { return progress_of(communicator, phase, is_seen, num_ranks); });
}

qx_status qx_communicator_split(qx_communicator* communicator, const int32_t* members, int64_t num_members,
                                const char* name, qx_communicator** group) {
  return at_c_edge([&] { return split(communicator, members, num_members, name, group); });
}

qx_status qx_communicator_abort(qx_communicator* communicator, const char* reason) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
    communicator->core->abort(text_of(reason));
    return ok_status();
  });
}

qx_status qx_barrier(qx_communicator* communicator, int64_t timeout_ms, qx_work** work) {
  return start(communicator, work,
               [&](Communicator& core) -> Result<WorkPtr> { return core.barrier(milliseconds(timeout_ms)); });
}

qx_status qx_broadcast(qx_communicator* communicator, const qx_buffer* buffer, int32_t root, int64_t timeout_ms,
                       qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer own, buffer_of("buffer", buffer));
    return core.broadcast(own, root, milliseconds(timeout_ms));
  });
}

qx_status qx_all_reduce(qx_communicator* communicator, const qx_buffer* buffer, const qx_reduction* reduction,
                        int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer own, buffer_of("buffer", buffer));
    QX_ASSIGN_OR_RETURN(const Reduction how, reduction_of(reduction));
    return core.all_reduce(own, how, milliseconds(timeout_ms));
  });
}

qx_status qx_reduce(qx_communicator* communicator, const qx_buffer* input, const qx_buffer* output, int32_t root,
                    const qx_reduction* reduction, int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer given, buffer_of("input", input));
    Buffer result;
    if (output != nullptr || root == core.options().rank) {
      QX_ASSIGN_OR_RETURN(result, buffer_of("output", output));
    }
    QX_ASSIGN_OR_RETURN(const Reduction how, reduction_of(reduction));
    return core.reduce(given, result, root, how, milliseconds(timeout_ms));
  });
}

qx_status qx_all_gather(qx_communicator* communicator, const qx_buffer* input, const qx_buffer* outputs,
                        int64_t num_outputs, int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer given, buffer_of("input", input));
    QX_ASSIGN_OR_RETURN(std::vector<Buffer> results, buffers_of("outputs", outputs, num_outputs));
    return core.all_gather(given, std::move(results), milliseconds(timeout_ms));
  });
}

qx_status qx_gather(qx_communicator* communicator, const qx_buffer* input, const qx_buffer* outputs,
                    int64_t num_outputs, int32_t root, int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer given, buffer_of("input", input));
    QX_ASSIGN_OR_RETURN(std::vector<Buffer> results, buffers_of("outputs", outputs, num_outputs));
    return core.gather(given, std::move(results), root, milliseconds(timeout_ms));
  });
}

qx_status qx_scatter(qx_communicator* communicator, const qx_buffer* inputs, int64_t num_inputs,
                     const qx_buffer* output, int32_t root, int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(std::vector<Buffer> given, buffers_of("inputs", inputs, num_inputs));
    QX_ASSIGN_OR_RETURN(const Buffer result, buffer_of("output", output));
    return core.scatter(std::move(given), result, root, milliseconds(timeout_ms));
  });
}

qx_status qx_reduce_scatter(qx_communicator* communicator, const qx_buffer* inputs, int64_t num_inputs,
                            const qx_buffer* output, const qx_reduction* reduction, int64_t timeout_ms,
                            qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(std::vector<Buffer> given, buffers_of("inputs", inputs, num_inputs));
    QX_ASSIGN_OR_RETURN(const Buffer result, buffer_of("output", output));
    QX_ASSIGN_OR_RETURN(const Reduction how, reduction_of(reduction));
    return core.reduce_scatter(std::move(given), result, how, milliseconds(timeout_ms));
  });
}

qx_status qx_all_to_all(qx_communicator* communicator, const qx_buffer* inputs, const qx_buffer* outputs,
                        int64_t num_buffers, int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(std::vector<Buffer> given, buffers_of("inputs", inputs, num_buffers));
    QX_ASSIGN_OR_RETURN(std::vector<Buffer> results, buffers_of("outputs", outputs, num_buffers));
    return core.all_to_all(std::move(given), std::move(results), milliseconds(timeout_ms));
  });
}

qx_status qx_send(qx_communicator* communicator, const qx_buffer* buffer, int32_t destination, int32_t tag,
                  int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer own, buffer_of("buffer", buffer));
    return core.send(own, destination, tag, milliseconds(timeout_ms));
  });
}

qx_status qx_recv(qx_communicator* communicator, const qx_buffer* buffer, int32_t source, int32_t tag,
                  int64_t timeout_ms, qx_work** work) {
  return start(communicator, work, [&](Communicator& core) -> Result<WorkPtr> {
    QX_ASSIGN_OR_RETURN(const Buffer own, buffer_of("buffer", buffer));
    return core.recv(own, source, tag, milliseconds(timeout_ms));
  });
}

qx_status qx_work_wait(qx_work* work, int64_t timeout_ms) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("work", work));
    QX_RETURN_IF_ERROR(check_time(timeout_ms));
    return work->core->wait(milliseconds(timeout_ms));
  });
}

qx_status qx_work_test(qx_work* work, int32_t* is_done) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("work", work));
    QX_RETURN_IF_ERROR(check_pointer("is_done", is_done));
    *is_done = work->core->is_completed() ? 1 : 0;
    return *is_done != 0 ? work->core->status() : ok_status();
  });
}

int32_t qx_work_source_rank(const qx_work* work) { return work != nullptr ? work->core->source_rank() : -1; }

qx_status qx_work_on_completion(qx_work* work, void (*callback)(qx_status status, void* context), void* context) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("work", work));
    if (callback == nullptr) return check_pointer("callback", nullptr);
    work->core->on_completion([callback, context](const Status& status) { callback(qx::to_c(status), context); });
    return ok_status();
  });
}

void qx_work_free(qx_work* work) { delete work; }

qx_status qx_communicator_allocate(qx_communicator* communicator, int64_t size_bytes, qx_memory** memory) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("memory", memory));
    *memory = nullptr;
    QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
    QX_ASSIGN_OR_RETURN(std::shared_ptr<void> core, communicator->core->allocate(size_bytes));
    *memory = new qx_memory{std::move(core)};
    return ok_status();
  });
}

void* qx_memory_data(const qx_memory* memory) { return memory != nullptr ? memory->core.get() : nullptr; }

void qx_memory_free(qx_memory* memory) { delete memory; }

qx_status qx_communicator_statistics(const qx_communicator* communicator, char** json) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("json", json));
    *json = nullptr;
    QX_RETURN_IF_ERROR(check_pointer("communicator", communicator));
    return give_text(communicator->core->statistics_json(), json);
  });
}

qx_status qx_flight_records(int32_t format, char** json) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("json", json));
    *json = nullptr;
    QX_ASSIGN_OR_RETURN(const FlightFormat known, format_of(format));
    return give_text(qx::collectives::flight_records_text(known), json);
  });
}

qx_status qx_write_flight_records(const char* path, int32_t format) {
  return at_c_edge([&]() -> Status {
    QX_RETURN_IF_ERROR(check_pointer("path", path));
    QX_ASSIGN_OR_RETURN(const FlightFormat known, format_of(format));
    return qx::collectives::write_flight_records(path, known);
  });
}

void qx_text_free(char* text) { std::free(text); }
