#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "quincunx/torch/distributed/backend.h"
#include "quincunx/torch/distributed/errors.h"
#include "quincunx/torch/distributed/work.h"

namespace qx::distributed {
namespace {

using c10d::OpType;

// What the ranks must know of each other's tensor before they exchange it: number of values, number of sparse
// dimensions, then the shape.
at::Tensor describe(const at::Tensor& tensor) {
  std::vector<int64_t> fields{tensor._nnz(), tensor.sparse_dim()};
  fields.insert(fields.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(fields, at::kLong);
}

}  // namespace

// The descriptions are exchanged before this returns, since the sizes of what follows depend on them. Values of one
// place are added in the order of ranks.
WorkHandle McclBackend::allreduce_sparse(TensorList& list, const c10d::AllreduceOptions& opts) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor& tensor = only(list, "tensors");
  if (!tensor.defined() || !tensor.is_sparse()) throw_status(type_error("tensor: expected a sparse COO tensor"));
  if (opts.reduceOp.op_ != c10d::ReduceOp::SUM) {
    throw_status(unimplemented("op: sparse tensors can only be summed, got another reduction"));
  }
  const at::Tensor own = tensor.coalesce();
  const auto timeout = timeout_from(opts.timeout);
  const at::Tensor description = describe(own);
  const at::Tensor descriptions = at::empty({size_, description.numel()}, at::kLong);
  const auto exchanged = std::make_shared<OperationTensors>();
  const Buffer described = exchanged->output(descriptions, "descriptions", false);
  const auto exchange = communicator()->all_gather(exchanged->input(description, "description"),
                                                   equal_parts(described, size_, "descriptions"), timeout);
  // The memory stays until the exchange has ended, also where the wait for it is interrupted.
  exchange->on_completion([exchanged](const Status&) {});
  throw_if_wait_failed(exchange->wait());
  TensorList indices, values;
  for (int64_t rank = 0; rank < size_; ++rank) {
    const at::Tensor row = descriptions[rank];
    if (!row.slice(0, 1).equal(description.slice(0, 1))) {
      throw_status(
          invalid_argument("tensor: sparse tensors must have the same shape and sparse dimensions on all "
                           "ranks; rank " +
                           std::to_string(rank) + " differs from rank " + std::to_string(rank_)));
    }
    const int64_t num_values = row[0].item<int64_t>();
    indices.push_back(at::empty({own.sparse_dim(), num_values}, own._indices().options()));
    std::vector<int64_t> shape(own._values().sizes().vec());
    shape[0] = num_values;
    values.push_back(at::empty(shape, own._values().options()));
  }
  const auto gather = [&](TensorList& parts, const at::Tensor& part, const char* title, std::function<void()> combine) {
    OperationTensors tensors;
    std::vector<Buffer> outputs;
    const Buffer input = tensors.input(part, "tensor");
    for (const at::Tensor& output : parts) outputs.push_back(tensors.output(output, "tensor", false));
    tensors.results = list;
    tensors.combine = std::move(combine);
    return launch(OpType::ALLREDUCE, title, communicator()->all_gather(input, std::move(outputs), timeout),
                  std::move(tensors));
  };
  const WorkHandle first = gather(indices, own._indices(), nullptr, {});
  // Operations of a group end in order: the indices are there when the values are.
  const WorkHandle second = gather(values, own._values(), "mccl:all_reduce", [=] {
    const at::AutoDispatchBelowADInplaceOrView below;
    tensor.copy_(at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values, 0), tensor.sizes()).coalesce());
  });
  return c10::make_intrusive<CoalescedWork>(rank_, OpType::ALLREDUCE, std::vector<WorkHandle>{first, second});
}

}  // namespace qx::distributed
