#include "quincunx/lite/method.h"

#include <algorithm>
#include <set>

#include "quincunx/base/trace.h"
#include "quincunx/lite/plan/arguments.h"
#include "quincunx/lite/plan/fuse.h"

namespace qx::lite {
namespace {

// Plans for more shapes than this are made anew: a caller with ever new shapes must not fill the memory.
constexpr size_t kMaxPlans = 64;

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

std::string dim_text(const graph::Graph& graph, const graph::Dim& dim) {
  if (dim.is_known()) return std::to_string(dim.value);
  std::string text = graph.symbols[static_cast<size_t>(dim.symbol)].name;
  if (dim.multiplier != 1) text = std::to_string(dim.multiplier) + " * " + text;
  if (dim.value != 0) text += (dim.value > 0 ? " + " : " - ") + std::to_string(std::abs(dim.value));
  return text;
}

std::string type_text(const graph::Graph& graph, const graph::TensorType& type) {
  std::string text = std::string(dtype_name(type.dtype)) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i) text += (i > 0 ? ", " : "") + dim_text(graph, type.shape[i]);
  return text + "]";
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

Status Method::check_operators() const {
  std::set<std::string> missing;
  for (const graph::Node& node : graph_.nodes) {
    const Operator* entry = find_operator(node.op);
    if (entry == nullptr) {
      missing.insert(node.op);
    } else {
      QX_RETURN_IF_ERROR(check_signature(node, *entry));
    }
  }
  if (missing.empty()) return check_results();
  std::string list;
  for (const std::string& name : missing) list += (list.empty() ? "" : ", ") + name;
  return unimplemented("method " + quoted(graph_.name) + ": the runtime has no " + list +
                       "; docs/lite-operators.md lists what it has");
}

// That nobody reads a result that the runtime does not compute.
Status Method::check_results() const {
  std::set<graph::ValueId> read(graph_.outputs.begin(), graph_.outputs.end());
  for (const graph::State& state : graph_.states) read.insert(state.output);
  for (const graph::Node& node : graph_.nodes) for_each_tensor(node, [&](graph::ValueId id) { read.insert(id); });
  for (const graph::Node& node : graph_.nodes) {
    const size_t computed = find_operator(node.op)->num_computed;
    for (size_t i = computed; computed != 0 && i < node.results.size(); ++i) {
      if (!read.contains(node.results[i])) continue;
      return unimplemented("method " + quoted(graph_.name) + ", node " + quoted(node.name) + " (" + node.op +
                           "): result " + std::to_string(i) + " is not computed; it serves training");
    }
  }
  return ok_status();
}

void Method::describe() {
  info_.name = graph_.name;
  info_.symbols = graph_.symbols;
  std::set<graph::ValueId> states;
  for (const graph::State& state : graph_.states) {
    states.insert(state.input);
    info_.states.push_back(state.name);
  }
  const auto spec = [&](graph::ValueId id) {
    const graph::Value& value = graph_.values[static_cast<size_t>(id)];
    return TensorSpec{value.name, value.type};
  };
  for (const graph::ValueId id : graph_.inputs) {
    if (states.contains(id)) continue;
    inputs_.push_back(id);
    info_.inputs.push_back(spec(id));
  }
  for (const graph::ValueId id : graph_.outputs) info_.outputs.push_back(spec(id));
}

Result<std::unique_ptr<Method>> Method::create(graph::Graph graph, const SessionOptions& options, PackCache& cache) {
  QX_RETURN_IF_ERROR(graph::verify(graph));
  std::unique_ptr<Method> method(new Method());
  method->graph_ = std::move(graph);
  QX_RETURN_IF_ERROR(method->check_operators());
  method->describe();
  remove_unused_nodes(method->graph_);
  QX_ASSIGN_OR_RETURN(method->constants_,
                      fold_constants(method->graph_, options.rewrites ? kMaxFoldedBytes : int64_t{0}));
  if (options.rewrites) fuse_epilogues(method->graph_);
  QX_ASSIGN_OR_RETURN(method->packed_, pack_weights(method->graph_, method->constants_, cache));
  QX_RETURN_IF_ERROR(method->find_operators());
  return method;
}

Status Method::find_operators() {
  for (const graph::Node& node : graph_.nodes) {
    operators_.push_back(find_operator(node.op));
    prepared_.emplace_back();
    if (operators_.back()->prepare == nullptr) continue;
    Result<std::unique_ptr<const Prepared>> prepared = operators_.back()->prepare(node);
    if (!prepared.ok()) {
      return Status(prepared.status().code(), "method " + quoted(info_.name) + ", node " + quoted(node.name) + " (" +
                                                  node.op + "): " + prepared.status().message());
    }
    prepared_.back() = std::move(prepared).value();
  }
  return ok_status();
}

Status Method::check_inputs(std::span<const TensorView> inputs) const {
  if (inputs.size() != inputs_.size()) {
    return invalid_argument("method " + quoted(info_.name) + ": expected " + std::to_string(inputs_.size()) +
                            " inputs, got " + std::to_string(inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = info_.inputs[i];
    const std::string where = "input " + quoted(spec.name) + ": expected " + type_text(graph_, spec.type);
    if (inputs[i].dtype() != spec.type.dtype) return type_error(where + ", got " + inputs[i].to_string());
    if (inputs[i].device().device_type != kDLCPU) return type_error(where + " on the CPU");
    if (inputs[i].data() == nullptr && inputs[i].num_elements() != 0) return invalid_argument(where + ", got no data");
  }
  return ok_status();
}

Result<std::vector<int64_t>> Method::bind_symbols(const std::vector<std::vector<int64_t>>& input_shapes) const {
  std::vector<int64_t> symbols(graph_.symbols.size(), kUnboundSymbol);
  std::vector<std::string> bound_by(symbols.size());
  if (input_shapes.size() != inputs_.size()) {
    return invalid_argument("method " + quoted(info_.name) + ": expected shapes of " + std::to_string(inputs_.size()) +
                            " inputs, got " + std::to_string(input_shapes.size()));
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TensorSpec& spec = info_.inputs[i];
    const std::vector<int64_t>& shape = input_shapes[i];
    const std::string where =
        "input " + quoted(spec.name) + ": expected " + type_text(graph_, spec.type) + ", got " + shape_text(shape);
    if (shape.size() != spec.type.shape.size()) return invalid_argument(where);
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const graph::Dim& declared = spec.type.shape[dim];
      if (declared.is_known() && declared.value != shape[dim]) return invalid_argument(where);
      if (declared.is_known()) continue;
      const auto index = static_cast<size_t>(declared.symbol);
      const graph::Symbol& symbol = graph_.symbols[index];
      const int64_t difference = shape[dim] - declared.value;
      const int64_t value = difference / declared.multiplier;
      if (difference % declared.multiplier != 0 || value < 0) return invalid_argument(where);
      if (symbols[index] != kUnboundSymbol && symbols[index] != value) {
        return invalid_argument(where + ": " + symbol.name + " is " + std::to_string(symbols[index]) + " in " +
                                bound_by[index] + " and " + std::to_string(value) + " here");
      }
      if (value < symbol.min || value > symbol.max) {
        return invalid_argument(where + ": " + symbol.name + " must be " + std::to_string(symbol.min) + " to " +
                                std::to_string(symbol.max));
      }
      symbols[index] = value;
      bound_by[index] = "input " + quoted(spec.name);
    }
  }
  return symbols;
}

Result<BoundPlan*> Method::plan_for(const std::vector<std::vector<int64_t>>& input_shapes) {
  QX_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, bind_symbols(input_shapes));
  const auto found = plans_.find(symbols);
  if (found != plans_.end()) return found->second.get();
  if (plans_.size() >= kMaxPlans) plans_.clear();
  Result<Plan> plan = make_plan({graph_, constants_, inputs_, symbols});
  if (!plan.ok()) {
    return Status(plan.status().code(), "method " + quoted(info_.name) + ", " + plan.status().message());
  }
  auto bound = std::make_unique<BoundPlan>();
  bound->plan = *std::move(plan);
  bound->bases.assign(bound->plan.buffers.size(), nullptr);
  for (const PlannedValue& value : bound->plan.values) bound->values.push_back(value.view);
  return plans_.emplace(symbols, std::move(bound)).first->second.get();
}

Status Method::run_steps(const BoundPlan& bound, const RunOptions& options) const {
  using Clock = std::chrono::steady_clock;
  for (const int32_t step : bound.plan.steps) {
    const auto index = static_cast<size_t>(step);
    const graph::Node& node = graph_.nodes[index];
    if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed)) {
      return aborted("method " + quoted(info_.name) + " was cancelled before node " + quoted(node.name));
    }
    if (options.deadline && Clock::now() > *options.deadline) {
      return deadline_exceeded("method " + quoted(info_.name) + ": the deadline passed before node " +
                               quoted(node.name));
    }
    const auto begin = options.profile != nullptr ? Clock::now() : Clock::time_point();
    const TraceSpan span(node.op, "lite");
    const Call call(node, bound.values, bound.plan.symbols, packed_[index], prepared_[index].get());
    const Status status = operators_[index]->run(call);
    if (options.profile != nullptr) {
      const auto duration = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
      options.profile->add(node.name, node.op, duration.count());
    }
    if (!status.ok()) {
      return Status(status.code(), "method " + quoted(info_.name) + ", node " + quoted(node.name) + " (" + node.op +
                                       "): " + status.message());
    }
  }
  return ok_status();
}

}  // namespace qx::lite
