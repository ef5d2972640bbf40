#include "quincunx/lite/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "quincunx/graph/qxm.h"
#include "quincunx/lite/method.h"
#include "quincunx/lite/ops/rows.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/parallel/thread_count.h"

namespace qx::lite {
namespace {

std::vector<int64_t> shape_of(const TensorView& view) { return {view.shape().begin(), view.shape().end()}; }

Result<Tensor> allocate(DType dtype, std::span<const int64_t> shape) {
  QX_ASSIGN_OR_RETURN(const TensorView sized,
                      TensorView::contiguous(reinterpret_cast<void*>(kBufferBase), dtype, shape));
  Tensor tensor;
  QX_ASSIGN_OR_RETURN(tensor.storage, Storage::allocate(std::max<int64_t>(1, sized.size_bytes())));
  QX_ASSIGN_OR_RETURN(tensor.view, tensor.storage->view(dtype, shape));
  return tensor;
}

}  // namespace

// A state's memory, shared by all methods that name it.
struct StateMemory {
  graph::TensorType type;
  Tensor tensor;
  graph::Constant initial;  // no storage: zeros
};

struct Session::Impl {
  std::vector<std::unique_ptr<Method>> methods;
  std::vector<MethodInfo> infos;
  PackCache packed;
  std::map<std::string, StateMemory, std::less<>> states;
  std::shared_ptr<Storage> arena;

  Status add_states(const graph::Graph& graph);
  void reset();
  Result<Method*> find(std::string_view name) const;
  Status grow_arena(int64_t size_bytes);

  // One call: the inputs as they are read, the outputs as they are handed back.
  struct Invocation {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
  };
  Result<Invocation> prepare(const Method& method, const BoundPlan& bound, std::span<const TensorView> inputs,
                             const RunOptions& options);
  Status bind(const Method& method, BoundPlan& bound, const Invocation& invocation);
  Status finish(const Method& method, const BoundPlan& bound, const Invocation& invocation);
};

Status Session::Impl::add_states(const graph::Graph& graph) {
  for (const graph::State& state : graph.states) {
    const graph::Value& value = graph.values[static_cast<size_t>(state.input)];
    const std::string where = "method '" + graph.name + "', state '" + state.name + "': ";
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : value.type.shape) {
      if (!dim.is_known()) return invalid_argument(where + "expected known sizes");
      shape.push_back(dim.value);
    }
    auto [entry, added] = states.try_emplace(state.name);
    if (!added && entry->second.type != value.type) {
      return invalid_argument(where + "another method declares it with another type");
    }
    if (value.constant >= 0) entry->second.initial = graph.constants[static_cast<size_t>(value.constant)];
    if (!added) continue;
    entry->second.type = value.type;
    QX_ASSIGN_OR_RETURN(entry->second.tensor, allocate(value.type.dtype, shape));
  }
  return ok_status();
}

void Session::Impl::reset() {
  for (auto& [name, state] : states) {
    const auto bytes = static_cast<size_t>(state.tensor.view.size_bytes());
    if (bytes == 0) continue;
    if (state.initial.storage == nullptr) {
      std::memset(state.tensor.view.data(), 0, bytes);
    } else {
      std::memcpy(state.tensor.view.data(), state.initial.storage->data() + state.initial.offset_bytes, bytes);
    }
  }
}

Result<Method*> Session::Impl::find(std::string_view name) const {
  std::string known;
  for (const auto& method : methods) {
    if (method->info().name == name) return method.get();
    known += (known.empty() ? "'" : ", '") + method->info().name + "'";
  }
  return not_found("method '" + std::string(name) + "': expected one of " + known);
}

Status Session::Impl::grow_arena(int64_t size_bytes) {
  if (arena != nullptr && arena->size_bytes() >= size_bytes) return ok_status();
  arena.reset();
  QX_ASSIGN_OR_RETURN(arena, Storage::allocate(std::max<int64_t>(1, size_bytes)));
  return ok_status();
}

Result<Session::Impl::Invocation> Session::Impl::prepare(const Method& method, const BoundPlan& bound,
                                                         std::span<const TensorView> inputs,
                                                         const RunOptions& options) {
  Invocation invocation;
  for (const TensorView& input : inputs) {
    if (input.is_contiguous()) {
      invocation.inputs.push_back({nullptr, input});
      continue;
    }
    QX_ASSIGN_OR_RETURN(Tensor copy, allocate(input.dtype(), input.shape()));
    QX_RETURN_IF_ERROR(copy_elements(input, copy.view));
    invocation.inputs.push_back(std::move(copy));
  }
  const std::vector<graph::ValueId>& ids = method.graph().outputs;
  if (!options.outputs.empty() && options.outputs.size() != ids.size()) {
    return invalid_argument("outputs: expected " + std::to_string(ids.size()) + ", got " +
                            std::to_string(options.outputs.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorView& planned = bound.plan.values[static_cast<size_t>(ids[i])].view;
    if (options.outputs.empty()) {
      QX_ASSIGN_OR_RETURN(Tensor output, allocate(planned.dtype(), planned.shape()));
      invocation.outputs.push_back(std::move(output));
      continue;
    }
    const TensorView& given = options.outputs[i];
    if (given.dtype() != planned.dtype() || !std::ranges::equal(given.shape(), planned.shape()) ||
        !given.is_contiguous() || (given.data() == nullptr && given.num_elements() != 0)) {
      QX_ASSIGN_OR_RETURN(const TensorView wanted, TensorView::contiguous(reinterpret_cast<void*>(kBufferBase),
                                                                          planned.dtype(), planned.shape()));
      return invalid_argument("output '" + method.info().outputs[i].name + "': expected contiguous " +
                              wanted.to_string() + ", got " + given.to_string());
    }
    invocation.outputs.push_back({nullptr, given});
  }
  return invocation;
}

// Gives every buffer its address and every value of a buffer that moved since the last call its view.
Status Session::Impl::bind(const Method& method, BoundPlan& bound, const Invocation& invocation) {
  std::vector<bool> moved(bound.plan.buffers.size());
  for (size_t i = 0; i < moved.size(); ++i) {
    const Buffer& buffer = bound.plan.buffers[i];
    const auto index = static_cast<size_t>(buffer.index);
    std::byte* base = nullptr;
    switch (buffer.home) {
      case Buffer::Home::kArena: base = arena->mutable_data() + buffer.offset_bytes; break;
      case Buffer::Home::kInput: base = invocation.inputs[index].view.data_as<std::byte>(); break;
      case Buffer::Home::kOutput: base = invocation.outputs[index].view.data_as<std::byte>(); break;
      case Buffer::Home::kState:
        base = states.find(method.graph().states[index].name)->second.tensor.view.data_as<std::byte>();
        break;
    }
    moved[i] = base != bound.bases[i];
    bound.bases[i] = base;
  }
  for (size_t id = 0; id < bound.values.size(); ++id) {
    const PlannedValue& value = bound.plan.values[id];
    if (value.buffer < 0 || !moved[static_cast<size_t>(value.buffer)]) continue;
    const auto offset = reinterpret_cast<uintptr_t>(value.view.data()) - kBufferBase;
    std::byte* base = bound.bases[static_cast<size_t>(value.buffer)];
    QX_ASSIGN_OR_RETURN(bound.values[id],
                        TensorView::strided(base == nullptr ? nullptr : base + offset, value.view.dtype(),
                                            value.view.shape(), value.view.strides()));
  }
  return ok_status();
}

// Copies outputs that are views of something else, then the states' next values, which may lie in each other's memory.
Status Session::Impl::finish(const Method& method, const BoundPlan& bound, const Invocation& invocation) {
  const graph::Graph& graph = method.graph();
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const TensorView& value = bound.values[static_cast<size_t>(graph.outputs[i])];
    const TensorView& output = invocation.outputs[i].view;
    if (value.data() != output.data()) QX_RETURN_IF_ERROR(copy_elements(value, output));
  }
  std::vector<std::pair<Tensor, TensorView>> changed;
  for (const graph::State& state : graph.states) {
    const TensorView& value = bound.values[static_cast<size_t>(state.output)];
    const TensorView& memory = states.find(state.name)->second.tensor.view;
    if (value.data() == memory.data() && value.is_contiguous()) continue;
    QX_ASSIGN_OR_RETURN(Tensor copy, allocate(memory.dtype(), memory.shape()));
    QX_RETURN_IF_ERROR(copy_elements(value, copy.view));
    changed.emplace_back(std::move(copy), memory);
  }
  for (const auto& [copy, memory] : changed) QX_RETURN_IF_ERROR(copy_elements(copy.view, memory));
  return ok_status();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(std::vector<graph::Graph> methods, const SessionOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return invalid_argument("num_threads: expected 0 to " + std::to_string(kMaxThreads) + ", got " +
                            std::to_string(options.num_threads));
  }
  if (methods.empty()) return invalid_argument("methods: expected at least one graph");
  auto impl = std::make_unique<Impl>();
  std::set<std::string> names;
  for (graph::Graph& graph : methods) {
    if (!names.insert(graph.name).second) return invalid_argument("methods: two are named '" + graph.name + "'");
    QX_ASSIGN_OR_RETURN(std::unique_ptr<Method> method, Method::create(std::move(graph), options, impl->packed));
    QX_RETURN_IF_ERROR(impl->add_states(method->graph()));
    impl->infos.push_back(method->info());
    impl->methods.push_back(std::move(method));
  }
  impl->reset();
  if (options.num_threads != 0) set_num_threads(options.num_threads);
  return Session(std::move(impl));
}

Result<Session> Session::load(const std::string& path, const SessionOptions& options) {
  QX_ASSIGN_OR_RETURN(graph::Qxm model, graph::open_qxm(path, {.check_weights = options.check_weights}));
  return create(std::move(model.methods), options);
}

const std::vector<MethodInfo>& Session::methods() const { return impl_->infos; }

Result<const MethodInfo*> Session::method(std::string_view name) const {
  QX_ASSIGN_OR_RETURN(const Method* found, impl_->find(name));
  return &found->info();
}

Result<std::vector<Tensor>> Session::run(std::string_view method, std::span<const TensorView> inputs,
                                         const RunOptions& options) {
  QX_ASSIGN_OR_RETURN(Method* const found, impl_->find(method));
  QX_RETURN_IF_ERROR(found->check_inputs(inputs));
  std::vector<std::vector<int64_t>> shapes;
  for (const TensorView& input : inputs) shapes.push_back(shape_of(input));
  QX_ASSIGN_OR_RETURN(BoundPlan* const bound, found->plan_for(shapes));
  QX_RETURN_IF_ERROR(impl_->grow_arena(bound->plan.arena_bytes));
  QX_ASSIGN_OR_RETURN(Impl::Invocation invocation, impl_->prepare(*found, *bound, inputs, options));
  QX_RETURN_IF_ERROR(impl_->bind(*found, *bound, invocation));
  QX_RETURN_IF_ERROR(found->run_steps(*bound, options));
  QX_RETURN_IF_ERROR(impl_->finish(*found, *bound, invocation));
  return std::move(invocation.outputs);
}

Result<MemoryReport> Session::memory(std::string_view method, const std::vector<std::vector<int64_t>>& input_shapes) {
  QX_ASSIGN_OR_RETURN(Method* const found, impl_->find(method));
  QX_ASSIGN_OR_RETURN(const BoundPlan* bound, found->plan_for(input_shapes));
  MemoryReport report;
  report.arena_bytes = bound->plan.arena_bytes;
  report.unshared_bytes = bound->plan.unshared_bytes;
  report.output_bytes = bound->plan.output_bytes;
  report.packed_weight_bytes = impl_->packed.size_bytes();
  for (const auto& [name, state] : impl_->states) report.state_bytes += state.tensor.view.size_bytes();
  return report;
}

Result<std::vector<std::vector<int64_t>>> Session::output_shapes(
    std::string_view method, const std::vector<std::vector<int64_t>>& input_shapes) {
  QX_ASSIGN_OR_RETURN(Method* const found, impl_->find(method));
  QX_ASSIGN_OR_RETURN(const BoundPlan* bound, found->plan_for(input_shapes));
  std::vector<std::vector<int64_t>> shapes;
  for (const graph::ValueId id : found->graph().outputs) {
    shapes.push_back(shape_of(bound->plan.values[static_cast<size_t>(id)].view));
  }
  return shapes;
}

Result<TensorView> Session::state(std::string_view name) {
  const auto found = impl_->states.find(name);
  if (found != impl_->states.end()) return found->second.tensor.view;
  std::string known;
  for (const auto& [state, memory] : impl_->states) known += (known.empty() ? "'" : ", '") + state + "'";
  return not_found("state '" + std::string(name) + "': expected one of " + (known.empty() ? "none" : known));
}

void Session::reset_states() { impl_->reset(); }

Result<std::optional<std::chrono::steady_clock::time_point>> deadline_after(double seconds) {
  // The clock counts nanoseconds in 64 bits, which hold 292 years.
  constexpr double kNever = 1e9;
  if (std::isnan(seconds)) return invalid_argument("timeout_s is nan, expected a number of seconds");
  if (seconds >= kNever) return std::optional<std::chrono::steady_clock::time_point>();
  const std::chrono::duration<double> wait(std::max(seconds, 0.0));
  return std::optional(std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait));
}

}  // namespace qx::lite
