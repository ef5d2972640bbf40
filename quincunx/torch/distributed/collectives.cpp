#include <algorithm>
#include <regex>

#include "quincunx/torch/distributed/backend.h"
#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {
namespace {

using c10d::OpType;

std::string item(const char* name, size_t index) { return std::string(name) + "[" + std::to_string(index) + "]"; }

std::vector<Buffer> read_list(OperationTensors& tensors, const TensorList& list, const char* name) {
  std::vector<Buffer> buffers;
  buffers.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) buffers.push_back(tensors.input(list[i], item(name, i)));
  return buffers;
}

std::vector<Buffer> write_list(OperationTensors& tensors, const TensorList& list, const char* name) {
  std::vector<Buffer> buffers;
  buffers.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) buffers.push_back(tensors.output(list[i], item(name, i), false));
  return buffers;
}

// The message with the words that callers of torch's own monitored barrier look for: rank 0 names the first late rank,
// or all of them. An operation that timed out ends its message with them: "waiting for rank 1 (state), rank 5 (state)".
std::string monitored_barrier_text(int rank, const std::string& message, bool wait_all_ranks) {
  if (rank != 0) {
    return "Rank " + std::to_string(rank) +
           " successfully reached monitoredBarrier, but received errors while waiting"
           " for send/recv from rank 0: " +
           message;
  }
  std::string late;
  const std::regex name("rank ([0-9]+) \\(");
  const size_t list = std::min(message.find("waiting for "), message.size());
  for (std::sregex_iterator match(message.begin() + static_cast<std::ptrdiff_t>(list), message.end(), name), end;
       match != end && (late.empty() || wait_all_ranks); ++match) {
    late += (late.empty() ? "" : ", ") + match->str(1);
  }
  const char* const noun = late.find(',') == std::string::npos ? "Rank " : "Ranks ";
  return "Rank 0 timed out in monitoredBarrier" + (late.empty() ? "" : "; " + (noun + late)) +
         (late.empty() ? "" : " failed to pass monitoredBarrier") + ": " + message;
}

// All of the dtype of `other`.
void check_dtypes(const std::vector<Buffer>& buffers, const char* name, const Buffer& other, const char* other_name) {
  for (size_t i = 0; i < buffers.size(); ++i) check_same_dtype(buffers[i], item(name, i), other, other_name);
}

}  // namespace

WorkHandle McclBackend::broadcast(TensorList& list, const c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only(list, "tensors");
  const int root = checked_rank(opts.rootRank, "src");
  OperationTensors tensors;
  const Buffer buffer = root == rank_ ? tensors.input(tensor, "tensor") : tensors.output(tensor, "tensor", false);
  tensors.results = list;
  auto core = communicator()->broadcast(buffer, root, timeout_from(opts.timeout));
  return launch(OpType::BROADCAST, "mccl:broadcast", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::allreduce(TensorList& list, const c10d::AllreduceOptions& opts) {
  const at::Tensor& tensor = only(list, "tensors");
  if (tensor.defined() && tensor.is_sparse()) return allreduce_sparse(list, opts);
  OperationTensors tensors;
  const Buffer buffer = tensors.output(tensor, "tensor", true);
  tensors.results = list;
  auto core = communicator()->all_reduce(buffer, reduction_from(opts.reduceOp), timeout_from(opts.timeout));
  return launch(OpType::ALLREDUCE, "mccl:all_reduce", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::reduce(TensorList& list, const c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only(list, "tensors");
  const int root = checked_rank(opts.rootRank, "dst");
  OperationTensors tensors;
  const Buffer buffer = root == rank_ ? tensors.output(tensor, "tensor", true) : tensors.input(tensor, "tensor");
  const Buffer output = root == rank_ ? buffer : Buffer{.dtype = buffer.dtype};
  tensors.results = list;
  auto core = communicator()->reduce(buffer, output, root, reduction_from(opts.reduceOp), timeout_from(opts.timeout));
  return launch(OpType::REDUCE, "mccl:reduce", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::allgather(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) {
  TensorList& list = only(outputs, "tensor_lists");
  check_list(list.size(), size_, "tensor_list");
  OperationTensors tensors;
  const Buffer input = tensors.input(only(inputs, "tensors"), "tensor");
  std::vector<Buffer> parts = write_list(tensors, list, "tensor_list");
  check_dtypes(parts, "tensor_list", input, "tensor");
  check_count(parts[rank_].count, input.count, item("tensor_list", rank_) + ", which receives tensor");
  tensors.results = list;
  auto core = communicator()->all_gather(input, std::move(parts), timeout_from(opts.timeout));
  return launch(OpType::ALLGATHER, "mccl:all_gather", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  OperationTensors tensors;
  const Buffer source = tensors.input(input, "input_tensor");
  const Buffer whole = tensors.output(output, "output_tensor", false);
  check_same_dtype(whole, "output_tensor", source, "input_tensor");
  check_count(whole.count, source.count * size_, "output_tensor, which receives input_tensor of every rank");
  tensors.results = {output};
  auto core =
      communicator()->all_gather(source, equal_parts(whole, size_, "output_tensor"), timeout_from(opts.timeout));
  return launch(OpType::_ALLGATHER_BASE, "mccl:_all_gather_base", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::gather(TensorLists& outputs, TensorList& inputs, const c10d::GatherOptions& opts) {
  const int root = checked_rank(opts.rootRank, "dst");
  OperationTensors tensors;
  const Buffer input = tensors.input(only(inputs, "tensors"), "tensor");
  std::vector<Buffer> parts;
  if (root == rank_) {
    tensors.results = only(outputs, "gather_list");
    check_list(tensors.results.size(), size_, "gather_list");
    parts = write_list(tensors, tensors.results, "gather_list");
    check_dtypes(parts, "gather_list", input, "tensor");
    check_count(parts[rank_].count, input.count, item("gather_list", rank_) + ", which receives tensor");
  } else {
    check_list(outputs.size(), 0, "gather_list, which only dst receives");
  }
  auto core = communicator()->gather(input, std::move(parts), root, timeout_from(opts.timeout));
  return launch(OpType::GATHER, "mccl:gather", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::scatter(TensorList& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  const int root = checked_rank(opts.rootRank, "src");
  OperationTensors tensors;
  const Buffer output = tensors.output(only(outputs, "tensors"), "tensor", false);
  std::vector<Buffer> parts;
  if (root == rank_) {
    const TensorList& list = only(inputs, "scatter_list");
    check_list(list.size(), size_, "scatter_list");
    parts = read_list(tensors, list, "scatter_list");
    check_dtypes(parts, "scatter_list", output, "tensor");
    check_count(parts[rank_].count, output.count, item("scatter_list", rank_) + ", which goes to tensor");
  } else {
    check_list(inputs.size(), 0, "scatter_list, which only src sends");
  }
  tensors.results = outputs;
  auto core = communicator()->scatter(std::move(parts), output, root, timeout_from(opts.timeout));
  return launch(OpType::SCATTER, "mccl:scatter", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::reduce_scatter(TensorList& outputs, TensorLists& inputs,
                                       const c10d::ReduceScatterOptions& opts) {
  const TensorList& list = only(inputs, "input_lists");
  check_list(list.size(), size_, "input_list");
  OperationTensors tensors;
  const Buffer output = tensors.output(only(outputs, "outputs"), "output", false);
  std::vector<Buffer> parts = read_list(tensors, list, "input_list");
  check_dtypes(parts, "input_list", output, "output");
  check_count(parts[rank_].count, output.count, item("input_list", rank_) + ", which is reduced into output");
  tensors.results = outputs;
  auto core = communicator()->reduce_scatter(std::move(parts), output, reduction_from(opts.reduceOp),
                                             timeout_from(opts.timeout));
  return launch(OpType::REDUCE_SCATTER, "mccl:reduce_scatter", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::ReduceScatterOptions& opts) {
  OperationTensors tensors;
  const Buffer whole = tensors.input(input, "input");
  const Buffer part = tensors.output(output, "output", false);
  check_same_dtype(part, "output", whole, "input");
  check_count(whole.count, part.count * size_, "input, which holds output of every rank");
  tensors.results = {output};
  auto core = communicator()->reduce_scatter(equal_parts(whole, size_, "input"), part, reduction_from(opts.reduceOp),
                                             timeout_from(opts.timeout));
  return launch(OpType::_REDUCE_SCATTER_BASE, "mccl:_reduce_scatter_base", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_split_sizes,
                                      std::vector<int64_t>& input_split_sizes, const c10d::AllToAllOptions& opts) {
  OperationTensors tensors;
  const Buffer source = tensors.input(input, "input");
  const Buffer target = tensors.output(output, "output", false);
  check_same_dtype(target, "output", source, "input");
  std::vector<Buffer> sent = split_parts(source, input, input_split_sizes, size_, "input");
  std::vector<Buffer> received = split_parts(target, output, output_split_sizes, size_, "output");
  check_count(received[rank_].count, sent[rank_].count, "output's part of this rank itself");
  tensors.results = {output};
  auto core = communicator()->all_to_all(std::move(sent), std::move(received), timeout_from(opts.timeout));
  return launch(OpType::ALLTOALL_BASE, "mccl:all_to_all", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::alltoall(TensorList& outputs, TensorList& inputs, const c10d::AllToAllOptions& opts) {
  check_list(outputs.size(), size_, "output_tensor_list");
  check_list(inputs.size(), size_, "input_tensor_list");
  OperationTensors tensors;
  std::vector<Buffer> sent = read_list(tensors, inputs, "input_tensor_list");
  std::vector<Buffer> received = write_list(tensors, outputs, "output_tensor_list");
  check_dtypes(sent, "input_tensor_list", sent[0], "input_tensor_list[0]");
  check_dtypes(received, "output_tensor_list", sent[0], "input_tensor_list[0]");
  check_count(received[rank_].count, sent[rank_].count, item("output_tensor_list", rank_));
  tensors.results = outputs;
  auto core = communicator()->all_to_all(std::move(sent), std::move(received), timeout_from(opts.timeout));
  return launch(OpType::ALLTOALL, "mccl:all_to_all", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::barrier(const c10d::BarrierOptions& opts) {
  return launch(OpType::BARRIER, "mccl:barrier", communicator()->barrier(timeout_from(opts.timeout)), {});
}

void McclBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  using std::chrono::milliseconds;
  // Here zero is a limit of its own.
  const milliseconds timeout = opts.timeout.count() == 0 ? milliseconds(1) : timeout_from(opts.timeout);
  const auto core = communicator()->barrier(timeout);
  const Status status = core->wait();
  throw_if_interrupted(status);
  if (!status.ok()) throw_status({status.code(), monitored_barrier_text(rank_, status.message(), wait_all_ranks)});
}

}  // namespace qx::distributed
