#include "quincunx/torch/distributed/backend.h"
#include "quincunx/torch/distributed/errors.h"
#include "quincunx/torch/distributed/work.h"

namespace qx::distributed {
namespace {

using c10d::OpType;

// All pairs before the first is queued: a list that fails half-way would leave the ranks out of step.
void check_pairs(const TensorList& outputs, const TensorList& inputs, int64_t outputs_factor, int64_t inputs_factor) {
  check_list(outputs.size(), inputs.size(), "outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string index = "[" + std::to_string(i) + "]";
    check_output(outputs[i], "outputs" + index);
    check_tensor(inputs[i], "inputs" + index);
    if (outputs[i].scalar_type() != inputs[i].scalar_type()) {
      throw_status(type_error("outputs" + index + ": expected dtype " + c10::toString(inputs[i].scalar_type()) +
                              " of inputs" + index + ", got " + c10::toString(outputs[i].scalar_type())));
    }
    check_count(outputs[i].numel() * outputs_factor, inputs[i].numel() * inputs_factor,
                "outputs" + index + " against inputs" + index);
  }
}

// Of this thread: operations are parts of one that the profiler sees as a whole.
thread_local bool untitled = false;

class UntitledParts {
 public:
  UntitledParts() { untitled = true; }
  ~UntitledParts() { untitled = false; }
  UntitledParts(const UntitledParts&) = delete;
  UntitledParts& operator=(const UntitledParts&) = delete;
};

}  // namespace

const char* McclBackend::profiler_title(const char* title) { return untitled ? nullptr : title; }

void McclBackend::startCoalescing() {
  std::lock_guard lock(coalescing_mutex_);
  if (!coalescing_.try_emplace(std::this_thread::get_id()).second) {
    throw_status(failed_precondition("coalescing has already been started by this thread"));
  }
}

WorkHandle McclBackend::endCoalescing() {
  std::lock_guard lock(coalescing_mutex_);
  auto entry = coalescing_.extract(std::this_thread::get_id());
  if (entry.empty()) throw_status(failed_precondition("coalescing has not been started by this thread"));
  return c10::make_intrusive<CoalescedWork>(rank_, OpType::COALESCED, std::move(entry.mapped()));
}

WorkHandle McclBackend::allreduce_coalesced(TensorList& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  for (size_t i = 0; i < tensors.size(); ++i) check_output(tensors[i], "tensors[" + std::to_string(i) + "]");
  const UntitledParts parts_are_untitled;
  std::vector<WorkHandle> parts;
  for (const at::Tensor& tensor : tensors) {
    TensorList list{tensor};
    parts.push_back(allreduce(list, opts));
  }
  return c10::make_intrusive<CoalescedWork>(rank_, OpType::ALLREDUCE_COALESCED, std::move(parts), "mccl:all_reduce",
                                            tensors);
}

// outputs[rank][i] receives tensor i of that rank.
WorkHandle McclBackend::allgather_coalesced(TensorLists& outputs, TensorList& inputs,
                                            const c10d::AllgatherOptions& opts) {
  check_list(outputs.size(), size_, "output_tensor_lists");
  for (const TensorList& list : outputs) check_pairs(list, inputs, 0, 0);
  const UntitledParts parts_are_untitled;
  std::vector<WorkHandle> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorLists received(1);
    for (const TensorList& list : outputs) received[0].push_back(list[i]);
    TensorList sent{inputs[i]};
    parts.push_back(allgather(received, sent, opts));
  }
  return c10::make_intrusive<CoalescedWork>(rank_, OpType::ALLGATHER_COALESCED, std::move(parts), "mccl:all_gather",
                                            inputs);
}

WorkHandle McclBackend::allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  check_pairs(outputs, inputs, 1, size_);
  const UntitledParts parts_are_untitled;
  std::vector<WorkHandle> parts;
  for (size_t i = 0; i < inputs.size(); ++i) parts.push_back(_allgather_base(outputs[i], inputs[i], opts));
  return c10::make_intrusive<CoalescedWork>(rank_, OpType::COALESCED, std::move(parts), "mccl:_all_gather_base",
                                            inputs);
}

WorkHandle McclBackend::reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                        const c10d::ReduceScatterOptions& opts) {
  check_pairs(outputs, inputs, size_, 1);
  const UntitledParts parts_are_untitled;
  std::vector<WorkHandle> parts;
  for (size_t i = 0; i < inputs.size(); ++i) parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], opts));
  return c10::make_intrusive<CoalescedWork>(rank_, OpType::REDUCE_SCATTER_TENSOR_COALESCED, std::move(parts),
                                            "mccl:_reduce_scatter_base", inputs);
}

}  // namespace qx::distributed
