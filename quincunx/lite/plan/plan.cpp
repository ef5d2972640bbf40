#include "quincunx/lite/plan/plan.h"

#include <algorithm>
#include <string>

#include "quincunx/lite/plan/arena_layout.h"
#include "quincunx/lite/plan/arguments.h"
#include "quincunx/lite/plan/channel_layout.h"

namespace qx::lite {
namespace {

using graph::Node;
using graph::ValueId;

void* buffer_base() { return reinterpret_cast<void*>(kBufferBase); }

bool same_view(const TensorView& left, const TensorView& right) {
  return left.data() == right.data() && std::ranges::equal(left.shape(), right.shape()) &&
         std::ranges::equal(left.strides(), right.strides());
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : graph_(request.graph),
        constants_(request.constants),
        inputs_(request.inputs),
        adjacent_channels_(values_with_adjacent_channels(request.graph)) {
    plan_.symbols = request.symbols;
    plan_.values.resize(graph_.values.size());
    views_.resize(graph_.values.size());
  }

  Result<Plan> run() {
    QX_RETURN_IF_ERROR(place_given_values());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      Status status = place_results(static_cast<int32_t>(i));
      if (status.ok()) continue;
      return Status(status.code(), "node '" + node.name + "' (" + node.op + "): " + status.message());
    }
    find_lifetimes();
    for (size_t step = 0; step < plan_.steps.size(); ++step) reuse_argument(static_cast<int64_t>(step));
    place_outputs();
    QX_RETURN_IF_ERROR(lay_out());
    return std::move(plan_);
  }

 private:
  bool is_constant(ValueId id) const {
    return constants_[static_cast<size_t>(id)].data() != nullptr ||
           graph_.values[static_cast<size_t>(id)].constant >= 0;
  }

  int32_t add_buffer(Buffer buffer) {
    plan_.buffers.push_back(buffer);
    lifetimes_.push_back({buffer.size_bytes, 0, -1});
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }

  void set_value(ValueId id, int32_t buffer, const TensorView& view) {
    plan_.values[static_cast<size_t>(id)] = {buffer, view};
    views_[static_cast<size_t>(id)] = view;
  }

  // A contiguous tensor of the declared type at the base of a buffer of its own.
  Result<TensorView> declared(ValueId id) {
    const graph::TensorType& type = graph_.values[static_cast<size_t>(id)].type;
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : type.shape) shape.push_back(resolve_dim(dim, plan_.symbols));
    return TensorView::contiguous(buffer_base(), type.dtype, shape);
  }

  // The same where the value should lie; [batch, channels, spatial ...] with the channels innermost.
  Result<TensorView> placed(ValueId id) {
    QX_ASSIGN_OR_RETURN(const TensorView view, declared(id));
    if (!adjacent_channels_[static_cast<size_t>(id)]) return view;
    std::vector<int64_t> strides(view.strides().begin(), view.strides().end());
    strides[1] = 1;
    int64_t step = view.size(1);
    for (int dim = view.num_dims() - 1; dim >= 2; --dim) {
      strides[static_cast<size_t>(dim)] = step;
      step *= view.size(dim);
    }
    return TensorView::strided(buffer_base(), view.dtype(), view.shape(), strides);
  }

  Status place_given_values() {
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (!is_constant(static_cast<ValueId>(id))) continue;
      set_value(static_cast<ValueId>(id), PlannedValue::kConstant, constants_[id]);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      QX_ASSIGN_OR_RETURN(const TensorView view, declared(inputs_[i]));
      set_value(inputs_[i], add_buffer({Buffer::Home::kInput, static_cast<int32_t>(i), view.size_bytes(), 0}), view);
    }
    for (size_t i = 0; i < graph_.states.size(); ++i) {
      const ValueId id = graph_.states[i].input;
      QX_ASSIGN_OR_RETURN(const TensorView view, declared(id));
      set_value(id, add_buffer({Buffer::Home::kState, static_cast<int32_t>(i), view.size_bytes(), 0}), view);
    }
    return ok_status();
  }

  bool has_unbound_size(ValueId id) const {
    const auto& shape = graph_.values[static_cast<size_t>(id)].type.shape;
    return std::any_of(shape.begin(), shape.end(), [&](const graph::Dim& dim) {
      return !dim.is_known() && plan_.symbols[static_cast<size_t>(dim.symbol)] == kUnboundSymbol;
    });
  }

  // Compares what an operator gives to what the graph declares; symbols that no input gives get their value here.
  Status bind(ValueId id, std::span<const int64_t> shape) {
    const graph::Value& value = graph_.values[static_cast<size_t>(id)];
    if (shape.size() != value.type.shape.size()) {
      return invalid_argument("gives " + std::to_string(shape.size()) + " dimensions, the graph declares " +
                              std::to_string(value.type.shape.size()));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      const graph::Dim& dim = value.type.shape[i];
      if (!dim.is_known()) {
        int64_t& symbol = plan_.symbols[static_cast<size_t>(dim.symbol)];
        const int64_t difference = shape[i] - dim.value;
        if (symbol == kUnboundSymbol && difference % dim.multiplier == 0) symbol = difference / dim.multiplier;
      }
      if (resolve_dim(dim, plan_.symbols) != shape[i]) {
        return invalid_argument("gives size " + std::to_string(shape[i]) + " in dimension " + std::to_string(i) +
                                " of '" + value.name + "', the graph declares " +
                                std::to_string(resolve_dim(dim, plan_.symbols)));
      }
    }
    return ok_status();
  }

  // Makes sure that all sizes of a result are known before it is placed.
  Status resolve_shape(const Node& node, const Operator& entry, size_t result) {
    const ValueId id = node.results[result];
    if (!has_unbound_size(id)) return ok_status();
    if (entry.shape == nullptr) {
      return unimplemented("the size of '" + graph_.values[static_cast<size_t>(id)].name +
                           "' follows from no input's shape");
    }
    QX_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, entry.shape(Call(node, views_, plan_.symbols), result));
    return bind(id, shape);
  }

  // Whether the result is a view of argument 0; if so, it is placed.
  Result<bool> place_view(const Node& node, const Operator& entry, size_t result) {
    if (entry.view == nullptr) return false;
    const auto id = static_cast<size_t>(node.results[result]);
    QX_ASSIGN_OR_RETURN(views_[id], TensorView::contiguous(buffer_base(), graph_.values[id].type.dtype, {}));
    QX_ASSIGN_OR_RETURN(const std::optional<TensorView> view, entry.view(Call(node, views_, plan_.symbols), result));
    if (!view) return false;
    QX_RETURN_IF_ERROR(bind(node.results[result], view->shape()));
    const auto base = static_cast<size_t>(std::get<graph::TensorRef>(node.arguments[0]).id);
    if (view->dtype() != graph_.values[id].type.dtype) {
      return invalid_argument("gives " + view->to_string() + ", the graph declares another dtype");
    }
    set_value(node.results[result], plan_.values[base].buffer, *view);
    return true;
  }

  Status place_results(int32_t index) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    const Operator& entry = *find_operator(node.op);
    bool needs_step = false;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId id = node.results[i];
      if (id == graph::kNoValue || is_constant(id)) continue;
      QX_ASSIGN_OR_RETURN(const bool viewed, place_view(node, entry, i));
      if (viewed) continue;
      QX_RETURN_IF_ERROR(resolve_shape(node, entry, i));
      QX_ASSIGN_OR_RETURN(const TensorView view, placed(id));
      set_value(id, add_buffer({Buffer::Home::kArena, 0, view.size_bytes(), 0}), view);
      lifetimes_.back().first = static_cast<int64_t>(plan_.steps.size());
      lifetimes_.back().last = lifetimes_.back().first;
      needs_step = true;
    }
    if (needs_step) plan_.steps.push_back(index);
    return ok_status();
  }

  void use(ValueId id, int64_t step) {
    const int32_t buffer = plan_.values[static_cast<size_t>(id)].buffer;
    if (buffer >= 0)
      lifetimes_[static_cast<size_t>(buffer)].last = std::max(lifetimes_[static_cast<size_t>(buffer)].last, step);
  }

  void find_lifetimes() {
    for (size_t step = 0; step < plan_.steps.size(); ++step) {
      const Node& node = graph_.nodes[static_cast<size_t>(plan_.steps[step])];
      for_each_tensor(node, [&](ValueId id) { use(id, static_cast<int64_t>(step)); });
    }
    const auto end = static_cast<int64_t>(plan_.steps.size());
    for (const ValueId id : graph_.outputs) use(id, end);
    for (const graph::State& state : graph_.states) use(state.output, end);
  }

  bool covers_buffer(const PlannedValue& value) const {
    return value.view.data() == buffer_base() && value.view.is_contiguous() &&
           value.view.size_bytes() == plan_.buffers[static_cast<size_t>(value.buffer)].size_bytes;
  }

  // Whether the elements of `from`, which fill its buffer, are in the order of those of `to`.
  bool lies_as(const PlannedValue& from, const PlannedValue& to) const {
    if (to.view.is_contiguous()) return covers_buffer(from);
    return from.view.data() == buffer_base() && std::ranges::equal(from.view.strides(), to.view.strides()) &&
           from.view.size_bytes() == plan_.buffers[static_cast<size_t>(from.buffer)].size_bytes;
  }

  // A state may be overwritten by what becomes its next value.
  bool may_overwrite(int32_t buffer, int32_t result_buffer, const Operator& entry) const {
    const Buffer& memory = plan_.buffers[static_cast<size_t>(buffer)];
    if (memory.home == Buffer::Home::kArena) return true;
    if (memory.home != Buffer::Home::kState || !entry.updates) return false;
    const ValueId next = graph_.states[static_cast<size_t>(memory.index)].output;
    return plan_.values[static_cast<size_t>(next)].buffer == result_buffer;
  }

  bool can_take(const Node& node, const Operator& entry, ValueId argument, int64_t step) const {
    const PlannedValue& from = plan_.values[static_cast<size_t>(argument)];
    const PlannedValue& to = plan_.values[static_cast<size_t>(node.results[0])];
    if (from.buffer < 0 || from.buffer == to.buffer || lifetimes_[static_cast<size_t>(from.buffer)].last != step ||
        !may_overwrite(from.buffer, to.buffer, entry) || !lies_as(from, to) ||
        dtype_size_bytes(from.view.dtype()) != dtype_size_bytes(to.view.dtype()) ||
        !std::ranges::equal(from.view.shape(), to.view.shape())) {
      return false;
    }
    bool alone = true;  // other arguments in the same memory would be overwritten while they are read
    for_each_tensor(node, [&](ValueId other) {
      const PlannedValue& value = plan_.values[static_cast<size_t>(other)];
      if (value.buffer == from.buffer && (entry.updates ? other != argument : !same_view(value.view, from.view))) {
        alone = false;
      }
    });
    return alone;
  }

  void reuse_argument(int64_t step) {
    const Node& node = graph_.nodes[static_cast<size_t>(plan_.steps[static_cast<size_t>(step)])];
    const Operator& entry = *find_operator(node.op);
    if (!entry.elementwise && !entry.updates) return;
    if (node.results[0] == graph::kNoValue) return;
    const int32_t old = plan_.values[static_cast<size_t>(node.results[0])].buffer;
    if (old < 0 || plan_.buffers[static_cast<size_t>(old)].home != Buffer::Home::kArena) return;
    ValueId taken = graph::kNoValue;
    for_each_tensor(node, [&](ValueId id) {
      const bool candidate = !entry.updates || id == std::get<graph::TensorRef>(node.arguments[0]).id;
      if (taken == graph::kNoValue && candidate && can_take(node, entry, id, step)) taken = id;
    });
    if (taken == graph::kNoValue) return;
    const int32_t buffer = plan_.values[static_cast<size_t>(taken)].buffer;
    for (PlannedValue& value : plan_.values) {
      if (value.buffer == old) value.buffer = buffer;
    }
    lifetimes_[static_cast<size_t>(buffer)].last = lifetimes_[static_cast<size_t>(old)].last;
    merged_.push_back(old);
  }

  void place_outputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const PlannedValue& value = plan_.values[static_cast<size_t>(graph_.outputs[i])];
      if (value.buffer >= 0) {
        Buffer& buffer = plan_.buffers[static_cast<size_t>(value.buffer)];
        if (buffer.home == Buffer::Home::kArena && covers_buffer(value)) {
          buffer.home = Buffer::Home::kOutput;
          buffer.index = static_cast<int32_t>(i);
        }
      }
      plan_.output_bytes += value.view.size_bytes();
    }
  }

  Status lay_out() {
    std::vector<BufferLifetime> lifetimes;
    std::vector<size_t> buffers;
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const bool merged = std::find(merged_.begin(), merged_.end(), static_cast<int32_t>(i)) != merged_.end();
      if (plan_.buffers[i].home != Buffer::Home::kArena || merged) continue;
      lifetimes.push_back(lifetimes_[i]);
      buffers.push_back(i);
      plan_.unshared_bytes += plan_.buffers[i].size_bytes;
    }
    QX_ASSIGN_OR_RETURN(const ArenaLayout layout, lay_out_arena(lifetimes));
    for (size_t i = 0; i < buffers.size(); ++i) plan_.buffers[buffers[i]].offset_bytes = layout.offsets[i];
    plan_.arena_bytes = layout.size_bytes;
    return ok_status();
  }

  const graph::Graph& graph_;
  const std::vector<TensorView>& constants_;
  const std::vector<ValueId>& inputs_;
  const std::vector<bool> adjacent_channels_;
  Plan plan_;
  std::vector<TensorView> views_;          // of plan_.values, as a Call wants them
  std::vector<BufferLifetime> lifetimes_;  // of plan_.buffers
  std::vector<int32_t> merged_;            // buffers that became part of another
};

}  // namespace

Result<Plan> make_plan(const PlanRequest& request) { return Planner(request).run(); }

}  // namespace qx::lite
