// Tensors as the contiguous buffers of a communicator. Everything here checks first and names the argument at fault.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "quincunx/collectives/communicator.h"

namespace qx::distributed {

using collectives::Buffer;

// The tensors of one operation: they stay alive until it has ended, and outputs that are not contiguous are received in
// a contiguous copy.
class OperationTensors {
 public:
  // The argument as contiguous memory to read.
  Buffer input(const at::Tensor& tensor, const std::string& name);
  // The argument as contiguous memory to write. `reads`: its present value matters (all_reduce, broadcast from root).
  Buffer output(const at::Tensor& tensor, const std::string& name, bool reads);
  // Copies what was received to the outputs that are not contiguous.
  void deliver();

  // Run by deliver, once: what makes the results of that which was received.
  std::function<void()> combine;
  std::vector<at::Tensor> results;  // what the caller gets from Work::result
  std::vector<at::Tensor> inputs;   // what the caller gave to read, for the profiler

 private:
  struct Copy {
    at::Tensor from, to;
  };
  std::vector<at::Tensor> alive_;
  std::vector<Copy> copies_;
};

// TypeError where `tensor` is not a dense CPU tensor of a dtype that can be moved.
void check_tensor(const at::Tensor& tensor, const std::string& name);
// Also ValueError where elements share memory.
void check_output(const at::Tensor& tensor, const std::string& name);
void check_same_dtype(const Buffer& buffer, const std::string& name, const Buffer& other,
                      const std::string& other_name);
void check_count(int64_t got, int64_t want, const std::string& what);
// ValueError unless the list has `want` elements.
void check_list(size_t got, size_t want, const std::string& name);

// num_parts equal slices of a buffer.
std::vector<Buffer> equal_parts(const Buffer& buffer, int num_parts, const std::string& name);
// Slices along dimension 0 by `split_sizes`, or equal ones where it is empty.
std::vector<Buffer> split_parts(const Buffer& buffer, const at::Tensor& tensor, const std::vector<int64_t>& split_sizes,
                                int num_parts, const std::string& name);

collectives::Reduction reduction_from(const c10d::ReduceOp& op);

}  // namespace qx::distributed
