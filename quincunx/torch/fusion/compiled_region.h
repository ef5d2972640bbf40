// A region of a torch graph as one call: takes the sizes from the inputs, allocates the results, runs the kernel.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/compiler/compiler.h"
#include "quincunx/graph/graph.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::torch_bridge {

// How a region is called.
struct CallLayout {
  // The region's inputs and outputs in the order of the call.
  std::vector<graph::ValueId> inputs;
  std::vector<graph::ValueId> outputs;
  // For each of these outputs its dims, the one with the largest stride first: {0, 1} is row-major.
  std::vector<std::vector<int64_t>> output_orders;
};

// What one call of a kernel takes.
struct RegionTime {
  int64_t nanoseconds = 0;  // the shortest of a few runs
  int64_t bytes = 0;        // of its inputs and outputs, each element once
};

// Immutable after create(); run() may be called from several threads.
class CompiledRegion {
 public:
  // UNIMPLEMENTED if a size that the region needs can be read from none of its inputs.
  static Result<CompiledRegion> create(const graph::Graph& graph, const compiler::Region& region,
                                       const CallLayout& layout);

  // Results of the types and memory orders that create() was given. Throws std::runtime_error("CODE: message") for
  // inputs that do not fit. With `time` the kernel runs a few times more, and `time` is told.
  std::vector<torch::stable::Tensor> run(const std::vector<torch::stable::Tensor>& inputs,
                                         RegionTime* time = nullptr) const;

 private:
  // symbol = (size(input, dim) - value) / multiplier
  struct Binding {
    int32_t symbol = 0;
    int32_t input = 0;
    int32_t dim = 0;
    int64_t multiplier = 1;
    int64_t value = 0;
  };
  struct Output {
    graph::TensorType type;
    std::vector<int64_t> order;
    int32_t kernel_index = 0;
  };

  Status add_outputs(const graph::Graph& graph, const compiler::Region& region, const CallLayout& layout);
  Status bind_symbols(const graph::Graph& graph, const compiler::Region& region, const CallLayout& layout);
  // The kernel, with the weight in its packed form where it is a product.
  Status run_kernel(const std::vector<torch::stable::Tensor>& inputs, std::span<const TensorView> input_views,
                    std::span<const TensorView> output_views, std::span<const int64_t> symbols) const;
  std::vector<int64_t> symbols_of(const std::vector<torch::stable::Tensor>& inputs) const;

  std::shared_ptr<const compiler::Kernel> kernel_;
  // By position in the call.
  std::vector<int32_t> input_ranks_;
  std::vector<int32_t> input_kernel_indices_;
  std::vector<Output> outputs_;
  std::vector<Binding> bindings_;
  int64_t num_symbols_ = 0;
};

}  // namespace qx::torch_bridge
