// The dispatcher fallback below autograd: sees every operator of a region once, and answers those that were kept.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "quincunx/torch/activation/frame.h"

namespace qx::activation {
namespace {

using torch::jit::Stack;

// Reserved by PyTorch for a FakeTensorMode in C++, which release 2.13 does not have. It lies below autograd and the
// Python modes, and no tensor carries it, so that only a thread that includes it comes here.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

// Views and changes in place are always done again: their results are part of other tensors.
bool can_be_kept(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.alias_info()) return false;
  }
  if (schema.returns().empty()) return false;
  for (const auto& result : schema.returns()) {
    if (result.alias_info() || result.type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return true;
}

// The statistics that batch_norm changes without saying so in its schema: arguments 3 and 4 in training (argument 5).
bool changes_statistics(const c10::OperatorHandle& op, const Stack& arguments, size_t index) {
  if (index != 3 && index != 4) return false;
  const std::string& name = op.operator_name().name;
  const bool is_batch_norm =
      name == "aten::native_batch_norm" || name == "aten::cudnn_batch_norm" || name == "aten::miopen_batch_norm";
  return is_batch_norm && arguments[5].toBool();
}

// Autocast casts a weight once for several uses, maybe outside of the region, so that casts are not counted.
bool is_weight_cast(const c10::OperatorHandle& op, const Stack& arguments) {
  if (op.operator_name().name != "aten::_to_copy") return false;
  const at::Tensor& self = arguments.front().toTensor();
  return self.requires_grad() && self.is_leaf();
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard not_again(kKey);
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  const auto frame = Frame::current();
  if (!frame || at::SavedTensorDefaultHooks::get_tls_state().is_tracing) {
    op.redispatchBoxed(below, stack);
    return;
  }
  frame->run_operator(op, below, stack);
}

std::string described(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  std::ostringstream text;
  text << op.operator_name().name << " (" << tensor.scalar_type() << " " << tensor.sizes() << ")";
  return text.str();
}

// The bytes that the tensor's elements lie in, gaps included.
at::Tensor span_bytes(const at::Tensor& tensor) {
  int64_t num_elements = tensor.numel() == 0 ? 0 : 1;
  for (int64_t dim = 0; num_elements > 0 && dim < tensor.dim(); ++dim) {
    num_elements += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto size = static_cast<int64_t>(tensor.itemsize());
  return at::empty({0}, at::kChar).set_(tensor.storage(), tensor.storage_offset() * size, {num_elements * size}, {1});
}

bool can_be_swapped(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_quantized() && tensor.has_storage();
}

}  // namespace

void install_fallback() {
  TORCH_CHECK(!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey),
              "quincunx.activation: this torch, or another library in this process, uses the dispatch key Fake");
  // Lives as long as the process: an operator may be on its way through it at any time.
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", std::make_optional(kKey), __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

void Frame::note_generator(const at::Generator& generator) {
  for (const auto& [known, state] : generators_) {
    if (known == generator) return;
  }
  generators_.emplace_back(generator, generator.get_state());
}

void Frame::note_argument(const c10::OperatorHandle& op, const at::Tensor& tensor, bool changed, bool returned) {
  if (!tensor.has_storage()) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (!made_here_.contains(storage) && !replaying_) {
    const auto [found, is_new] = external_.try_emplace(
        storage, ExternalTensor{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                                c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()),
                                {},
                                0,
                                {},
                                {}});
    if (is_new) {
      if (!tensor.is_inference()) found->second.counter = tensor.unsafeGetTensorImpl()->version_counter();
      found->second.version = found->second.counter.enabled() ? found->second.counter.current_version() : 0;
      found->second.used_by = described(op, tensor);
    }
  }
  if (changed) before_change(op, tensor, returned);
}

void Frame::before_change(const c10::OperatorHandle& op, const at::Tensor& tensor, bool returned) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (const auto external = external_.find(storage); external != external_.end() && !replaying_) {
    TORCH_CHECK(!(returned && tensor.requires_grad()), "checkpoint: ", described(op, tensor),
                " changes in place a tensor from outside of the region that takes part in autograd; "
                "clone it in the region first");
    if (external->second.bytes_before.defined()) return;
    const at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kChar))
                                 .set_(tensor.storage(), 0, {static_cast<int64_t>(storage->nbytes())}, {1});
    external->second.bytes_before = bytes.clone();
  }
  const auto kept = kept_by_storage_.find(storage);
  if (kept == kept_by_storage_.end()) return;
  for (KeptCall* call : kept->second) {
    call->changed_in_region = true;
    for (auto& result : call->results) {
      if (result && result->extent) result->extent->arena->finish_write(result->extent);
      if (result && result->memory.defined() && result->shares_memory) {
        result->memory = result->memory.clone();
        result->shares_memory = false;
      }
    }
  }
  kept_by_storage_.erase(kept);
}

void Frame::keep(OperatorRecord& record, const std::vector<at::Tensor>& results, Action action, KeptCall call) {
  ++(action == Action::kSave ? counters().kept_saved : counters().kept_swapped);
  KeptCall& kept = record.kept[record.num_forward - 1] = std::move(call);
  for (const at::Tensor& result : results) {
    std::optional<KeptTensor>& value = kept.results.emplace_back();
    if (!result.defined()) continue;
    value.emplace();
    if (action == Action::kSwap && result.numel() > 0) {
      const auto& arena = scopes_.back().policy->arena();
      value->layout = at::empty_strided(result.sizes(), result.strides(), result.options().device(at::kMeta));
      value->extent = arena->write(span_bytes(result));
      extents_.push_back(value->extent);
    } else {
      c10::TensorImpl* const impl = result.unsafeGetTensorImpl();
      const auto counter = impl->is_inference() ? c10::VariableVersion() : impl->version_counter();
      value->memory = at::Tensor(impl->shallow_copy_and_detach(counter, false));
      value->shares_memory = true;
      value->version = counter.enabled() ? counter.current_version() : 0;
      value->held = HeldBytes::make(Holder::kSaved, static_cast<int64_t>(result.nbytes()));
    }
    kept_by_storage_[result.storage().unsafeGetStorageImpl()].push_back(&kept);
  }
}

// Puts what was kept in the place of the operator's results.
void Frame::answer(KeptCall& call, const c10::OperatorHandle& op, Stack* stack) {
  ++counters().answered;
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (const auto& result : call.results) {
    at::Tensor value;
    if (result && result->extent) {
      const at::Tensor bytes = result->extent->arena->read(result->extent);
      value = at::empty({0}, result->layout.options().device(at::kCPU));
      value.set_(bytes.storage(), 0, result->layout.sizes(), result->layout.strides());
      read_back_.emplace(value.storage().unsafeGetStorageImpl(), value.storage().getWeakStorageImpl());
    } else if (result) {
      c10::TensorImpl* const impl = result->memory.unsafeGetTensorImpl();
      TORCH_CHECK(!result->shares_memory || impl->is_inference() ||
                      impl->version_counter().current_version() == result->version,
                  "checkpoint: the saved result of ", described(op, result->memory),
                  " was changed in place between the forward and its replay; clone it before changing it, or recompute "
                  "this operator");
      value = call.changed_in_region ? result->memory.clone()
                                     : at::Tensor(impl->shallow_copy_and_detach(c10::VariableVersion(0), true));
    }
    torch::jit::push(*stack, std::move(value));
  }
  if (call.generator_after) {
    auto& [generator, state] = *call.generator_after;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

void Frame::run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  ++counters().inspected;
  const c10::FunctionSchema& schema = op.schema();
  const size_t num_arguments = schema.arguments().size();
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(num_arguments), stack->end());
  bool on_meta = false;
  std::vector<c10::StorageImpl*> storages;
  std::optional<at::Generator> generator;
  for (size_t i = 0; i < num_arguments; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool in_schema = alias && alias->isWrite();
    const bool changed = in_schema || changes_statistics(op, arguments, i);
    if (arguments[i].isGenerator()) generator = arguments[i].toGenerator();
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      on_meta |= tensor.is_meta();
      if (tensor.has_storage()) storages.push_back(tensor.storage().unsafeGetStorageImpl());
    });
    if (on_meta) break;
    const bool returned = in_schema && !schema.returns().empty() && schema.returns().front().alias_info();
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { note_argument(op, tensor, changed, returned); });
  }
  if (generator && !replaying_) note_generator(*generator);
  if (on_meta) {
    op.redispatchBoxed(keys, stack);
    return;
  }
  OperatorRecord* const record = can_be_kept(schema) && !is_weight_cast(op, arguments) ? &records_[&schema] : nullptr;
  if (record && replaying_) {
    if (const auto kept = record->kept.find(record->num_replayed++); kept != record->kept.end()) {
      answer(kept->second, op, stack);
      return;
    }
  }
  op.redispatchBoxed(keys, stack);

  std::vector<at::Tensor> results;
  bool shares = false;
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    if ((*stack)[i].isTensor()) results.push_back((*stack)[i].toTensor());
    for_each_tensor((*stack)[i], [&](const at::Tensor& tensor) { on_meta |= tensor.is_meta(); });
    for_each_tensor((*stack)[i], [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return;
      c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      if (std::find(storages.begin(), storages.end(), storage) != storages.end()) {
        shares = true;
      } else if (!external_.contains(storage)) {
        made_here_.emplace(storage, tensor.storage().getWeakStorageImpl());
      }
    });
  }
  // Tensors without data are a compiler's, which works in the forward only.
  if (!record || replaying_ || on_meta) return;
  ++record->num_forward;
  if (shares || results.empty() || !results.front().defined() || !results.front().has_storage()) return;
  Scope& scope = scopes_.back();
  const Action action = scope.policy->decide(op, scope.modules, results, scope.counters);
  if (action == Action::kRecompute) return;
  for (const at::Tensor& result : results) {
    TORCH_CHECK_NOT_IMPLEMENTED(action == Action::kSave || !result.defined() || can_be_swapped(result),
                                "swap: the result of ", op.operator_name(), " is on ", result.device(), " with layout ",
                                result.layout(), "; expected a strided tensor on cpu");
  }
  KeptCall call;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    const at::Generator source = generator ? *generator : at::detail::getDefaultCPUGenerator();
    call.generator_after.emplace(source, source.get_state());
  }
  keep(*record, results, action, std::move(call));
}

}  // namespace qx::activation
