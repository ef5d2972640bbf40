#include "quincunx/torch/distributed/backend.h"
#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {
namespace {

using c10d::OpType;

constexpr int kAnySource = -1;

}  // namespace

WorkHandle McclBackend::send(TensorList& list, int destination, int tag) {
  OperationTensors tensors;
  const Buffer buffer = tensors.input(only(list, "tensors"), "tensor");
  auto core = communicator()->send(buffer, checked_rank(destination, "dst"), tag);
  return launch(OpType::SEND, "mccl:send", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::recv(TensorList& list, int source, int tag) {
  OperationTensors tensors;
  const Buffer buffer = tensors.output(only(list, "tensors"), "tensor", false);
  tensors.results = tensors.inputs = list;
  auto core = communicator()->recv(buffer, checked_rank(source, "src"), tag);
  return launch(OpType::RECV, "mccl:recv", std::move(core), std::move(tensors));
}

WorkHandle McclBackend::recvAnysource(TensorList& list, int tag) {
  OperationTensors tensors;
  const Buffer buffer = tensors.output(only(list, "tensors"), "tensor", false);
  tensors.results = tensors.inputs = list;
  auto core = communicator()->recv(buffer, kAnySource, tag);
  return launch(OpType::RECVANYSOURCE, "mccl:recvAnySource", std::move(core), std::move(tensors));
}

}  // namespace qx::distributed
