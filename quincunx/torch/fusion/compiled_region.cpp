#include "quincunx/torch/fusion/compiled_region.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "quincunx/torch/fusion/packed_weights.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int kTimedRuns = 5;

constexpr std::pair<ScalarType, DType> kTypes[] = {
    {ScalarType::Float, DType::kFloat32}, {ScalarType::BFloat16, DType::kBFloat16},
    {ScalarType::Half, DType::kFloat16},  {ScalarType::Double, DType::kFloat64},
    {ScalarType::Bool, DType::kBool},     {ScalarType::Char, DType::kInt8},
    {ScalarType::Byte, DType::kUInt8},    {ScalarType::Short, DType::kInt16},
    {ScalarType::Int, DType::kInt32},     {ScalarType::Long, DType::kInt64},
    {ScalarType::UInt16, DType::kUInt16}, {ScalarType::UInt32, DType::kUInt32},
    {ScalarType::UInt64, DType::kUInt64},
};

std::optional<ScalarType> scalar_type_of(DType dtype) {
  for (const auto& [scalar_type, candidate] : kTypes) {
    if (candidate == dtype) return scalar_type;
  }
  return std::nullopt;
}

TensorView view_of(const Tensor& tensor, const char* what, size_t index) {
  const std::string name = std::string(what) + " " + std::to_string(index);
  if (!tensor.is_cpu()) throw_if_error(type_error(name + ": expected a tensor on the CPU"));
  for (const auto& [scalar_type, dtype] : kTypes) {
    if (scalar_type != tensor.scalar_type()) continue;
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    return value_or_throw(TensorView::strided(tensor.mutable_data_ptr(), dtype, std::span(sizes.data(), sizes.size()),
                                              std::span(strides.data(), strides.size())));
  }
  throw_if_error(type_error(name + ": expected a real or boolean dtype, got ScalarType " +
                            std::to_string(static_cast<int>(tensor.scalar_type()))));
  return {};
}

Tensor empty_in_order(const std::vector<int64_t>& sizes, const std::vector<int64_t>& order, ScalarType type) {
  const bool row_major = std::is_sorted(order.begin(), order.end());
  if (row_major) return torch::stable::empty(sizes, type);
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= std::max<int64_t>(sizes[*dim], 1);
  }
  using torch::stable::detail::from;
  std::array<StableIValue, 6> stack{from(sizes),
                                    from(strides),
                                    from(std::optional(type)),
                                    from(std::optional<torch::headeronly::Layout>()),
                                    from(std::optional<torch::stable::Device>()),
                                    from(std::optional<bool>())};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::empty_strided", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

void collect_symbols(const graph::Dim& dim, std::set<int32_t>& symbols) {
  if (!dim.is_known()) symbols.insert(dim.symbol);
}

// Those of the results' shapes and of the nodes' arguments.
std::set<int32_t> needed_symbols(const graph::Graph& graph, const compiler::Region& region) {
  std::set<int32_t> symbols;
  for (const int32_t node : region.nodes) {
    for (const graph::ValueId result : graph.nodes[node].results) {
      for (const graph::Dim& dim : graph.values[result].type.shape) collect_symbols(dim, symbols);
    }
    for (const graph::Argument& argument : graph.nodes[node].arguments) {
      if (const auto* dim = std::get_if<graph::Dim>(&argument)) collect_symbols(*dim, symbols);
      if (const auto* dims = std::get_if<std::vector<graph::Dim>>(&argument)) {
        for (const graph::Dim& dim : *dims) collect_symbols(dim, symbols);
      }
    }
  }
  return symbols;
}

Status check_order(const std::vector<int64_t>& order, size_t num_dims) {
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> expected(num_dims);
  std::iota(expected.begin(), expected.end(), 0);
  if (sorted == expected) return ok_status();
  return invalid_argument("output_orders: expected a permutation of " + std::to_string(num_dims) + " dims");
}

// For each value of the call its position among the kernel's.
Result<std::vector<int32_t>> kernel_indices(const char* name, const std::vector<graph::ValueId>& call,
                                            const std::vector<graph::ValueId>& kernel) {
  std::vector<int32_t> indices;
  for (const graph::ValueId value : call) {
    const auto found = std::find(kernel.begin(), kernel.end(), value);
    if (found != kernel.end()) indices.push_back(static_cast<int32_t>(found - kernel.begin()));
  }
  if (indices.size() == kernel.size() && call.size() == kernel.size()) return indices;
  return invalid_argument(std::string(name) + ": expected the region's " + std::to_string(kernel.size()) +
                          " values, each once, got " + std::to_string(call.size()));
}

}  // namespace

Result<CompiledRegion> CompiledRegion::create(const graph::Graph& graph, const compiler::Region& region,
                                              const CallLayout& layout) {
  CompiledRegion result;
  result.kernel_ = region.kernel;
  result.num_symbols_ = static_cast<int64_t>(graph.symbols.size());
  QX_ASSIGN_OR_RETURN(result.input_kernel_indices_, kernel_indices("inputs", layout.inputs, region.inputs));
  QX_RETURN_IF_ERROR(result.add_outputs(graph, region, layout));
  QX_RETURN_IF_ERROR(result.bind_symbols(graph, region, layout));
  return result;
}

Status CompiledRegion::add_outputs(const graph::Graph& graph, const compiler::Region& region,
                                   const CallLayout& layout) {
  QX_ASSIGN_OR_RETURN(const std::vector<int32_t> indices, kernel_indices("outputs", layout.outputs, region.outputs));
  if (layout.output_orders.size() != layout.outputs.size()) {
    return invalid_argument("output_orders: expected " + std::to_string(layout.outputs.size()) + " entries, got " +
                            std::to_string(layout.output_orders.size()));
  }
  for (size_t i = 0; i < layout.outputs.size(); ++i) {
    const graph::Value& value = graph.values[layout.outputs[i]];
    if (!scalar_type_of(value.type.dtype)) {
      return unimplemented("result " + value.name + " has the dtype " + std::string(dtype_name(value.type.dtype)) +
                           ", which torch tensors of a region cannot have");
    }
    QX_RETURN_IF_ERROR(check_order(layout.output_orders[i], value.type.shape.size()));
    outputs_.push_back({value.type, layout.output_orders[i], indices[i]});
  }
  return ok_status();
}

Status CompiledRegion::bind_symbols(const graph::Graph& graph, const compiler::Region& region,
                                    const CallLayout& layout) {
  std::set<int32_t> bound;
  for (size_t input = 0; input < layout.inputs.size(); ++input) {
    const auto& shape = graph.values[layout.inputs[input]].type.shape;
    input_ranks_.push_back(static_cast<int32_t>(shape.size()));
    for (size_t i = 0; i < shape.size(); ++i) {
      const graph::Dim& dim = shape[i];
      if (dim.is_known() || dim.multiplier == 0 || !bound.insert(dim.symbol).second) continue;
      bindings_.push_back(
          {dim.symbol, static_cast<int32_t>(input), static_cast<int32_t>(i), dim.multiplier, dim.value});
    }
  }
  for (const int32_t symbol : needed_symbols(graph, region)) {
    if (!bound.contains(symbol)) {
      return unimplemented("the size " + graph.symbols[symbol].name + " can be read from no input of the region");
    }
  }
  return ok_status();
}

std::vector<int64_t> CompiledRegion::symbols_of(const std::vector<Tensor>& inputs) const {
  if (inputs.size() != input_ranks_.size()) {
    throw_if_error(invalid_argument("inputs: expected " + std::to_string(input_ranks_.size()) + " tensors, got " +
                                    std::to_string(inputs.size())));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dim() == input_ranks_[i]) continue;
    throw_if_error(invalid_argument("input " + std::to_string(i) + ": expected " + std::to_string(input_ranks_[i]) +
                                    " dimensions, got " + std::to_string(inputs[i].dim())));
  }
  std::vector<int64_t> symbols(static_cast<size_t>(num_symbols_));
  for (const Binding& binding : bindings_) {
    symbols[binding.symbol] = (inputs[binding.input].size(binding.dim) - binding.value) / binding.multiplier;
  }
  return symbols;
}

Status CompiledRegion::run_kernel(const std::vector<Tensor>& inputs, std::span<const TensorView> input_views,
                                  std::span<const TensorView> output_views, std::span<const int64_t> symbols) const {
  const compiler::PackingKernel* const product = kernel_->packing();
  if (product == nullptr) return kernel_->run(input_views, output_views, symbols);
  const auto position = std::find(input_kernel_indices_.begin(), input_kernel_indices_.end(), product->weight());
  const Tensor& weight = inputs[static_cast<size_t>(position - input_kernel_indices_.begin())];
  QX_ASSIGN_OR_RETURN(const TensorView right, product->rightOperand(input_views[product->weight()]));
  const std::shared_ptr<const PackedWeight> packed = find_or_pack(weight, right);
  if (packed == nullptr) return kernel_->run(input_views, output_views, symbols);
  return product->runPacked(input_views, output_views, packed_floats(*packed));
}

std::vector<Tensor> CompiledRegion::run(const std::vector<Tensor>& inputs, RegionTime* time) const {
  const std::vector<int64_t> symbols = symbols_of(inputs);
  std::vector<TensorView> input_views(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) input_views[input_kernel_indices_[i]] = view_of(inputs[i], "input", i);
  std::vector<Tensor> results;
  results.reserve(outputs_.size());
  std::vector<TensorView> output_views(outputs_.size());
  for (const Output& output : outputs_) {
    std::vector<int64_t> sizes;
    for (const graph::Dim& dim : output.type.shape) {
      sizes.push_back(dim.is_known() ? dim.value : dim.multiplier * symbols[dim.symbol] + dim.value);
    }
    results.push_back(empty_in_order(sizes, output.order, *scalar_type_of(output.type.dtype)));
    output_views[output.kernel_index] = view_of(results.back(), "result", results.size() - 1);
  }
  throw_if_error(run_kernel(inputs, input_views, output_views, symbols));
  if (time == nullptr) return results;
  // It reads its inputs and writes its outputs, nothing else: it may run again.
  const auto run_once = [&] {
    const auto start = std::chrono::steady_clock::now();
    throw_if_error(run_kernel(inputs, input_views, output_views, symbols));
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  };
  time->nanoseconds = run_once();
  for (int i = 1; i < kTimedRuns; ++i) time->nanoseconds = std::min<int64_t>(time->nanoseconds, run_once());
  for (const TensorView& view : input_views) time->bytes += view.size_bytes();
  for (const TensorView& view : output_views) time->bytes += view.size_bytes();
  return results;
}

}  // namespace qx::torch_bridge
