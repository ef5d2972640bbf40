#include "quincunx/collectives/operation_state.h"

#include "quincunx/collectives/engine.h"
#include "quincunx/collectives/flight_recorder.h"
#include "quincunx/collectives/group.h"

namespace qx::collectives {

OperationState::OperationState(std::shared_ptr<Engine> engine, Group* group, Description description)
    : engine_(std::move(engine)), group_(group), description_(std::move(description)) {}

OperationState::OperationState(Status failure) : ended_(true), status_(std::move(failure)) {}

Status OperationState::wait(std::chrono::milliseconds timeout) {
  if (is_completed()) return status_;
  return engine_->wait(*this, timeout);
}

Status OperationState::status() const { return is_completed() ? status_ : ok_status(); }

void OperationState::on_completion(std::function<void(const Status&)> callback) {
  {
    const std::lock_guard lock(callback_mutex_);
    if (!ended_.load(std::memory_order_relaxed)) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback(status_);
}

void OperationState::record() {
  const Call& call = description_.call;
  FlightRecord record;
  record.operation = call.operation;
  record.dtype = call.dtype;
  record.set_group_name(description_.group_name);
  record.rank = group_->rank();
  record.world_size = group_->size();
  record.peer = description_.peer;
  record.root = call.root;
  record.sequence = sequence;
  record.size_bytes = call.count * dtype_size_bytes(call.dtype);
  record.started = description_.started;
  ticket_ = FlightRecorder::instance().begin(std::move(record));
  if (is_completed()) FlightRecorder::instance().end(ticket_, status_);
}

std::function<void(const Status&)> OperationState::end(Status status, int source_rank) {
  if (ticket_ != 0) FlightRecorder::instance().end(ticket_, status);
  const std::lock_guard lock(callback_mutex_);
  status_ = std::move(status);
  source_rank_ = source_rank;
  ended_.store(true, std::memory_order_release);
  if (status_.ok()) return std::move(callback_);
  // The engine calls this without its lock, so that the file holds up nobody.
  return [callback = std::move(callback_)](const Status& failure) {
    write_flight_records_after_failure();
    if (callback) callback(failure);
  };
}

std::string OperationState::label() const {
  const Call& call = description_.call;
  std::string text(operation_name(call.operation));
  const bool pairwise = call.operation == Operation::kSend || call.operation == Operation::kRecv;
  text += pairwise ? " with tag " + std::to_string(call.root) : " #" + std::to_string(sequence);
  return text + " of group '" + description_.group_name + "' (" +
         std::to_string(call.count * dtype_size_bytes(call.dtype)) + " bytes)";
}

}  // namespace qx::collectives
