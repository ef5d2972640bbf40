#include "quincunx/torch/activation/frame.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace qx::activation {
namespace {

namespace py = pybind11;

thread_local std::vector<std::shared_ptr<Frame>> t_frames;
std::weak_ptr<Frame> g_newest_with_extents;

py::object& stop_class() {
  // Lives as long as the process: a replay may end at any time.
  static auto* const instance = new py::object();
  return *instance;
}

// Work of ours that neither autograd nor a mode nor the fallback shall see.
struct UnseenGuard {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard below_modes{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Fake})};
};

// The whole storage as bytes, whatever it holds.
at::Tensor storage_bytes(const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  const auto num_bytes = static_cast<int64_t>(storage->nbytes());
  const at::TensorOptions options = at::TensorOptions().dtype(at::kChar).device(storage->device());
  return at::empty({0}, options).set_(c10::Storage(storage), 0, {num_bytes}, {1});
}

// The same memory under a tensor of its own that counts changes together with the original.
at::Tensor alias_of(const at::Tensor& tensor) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const auto counter = impl->is_inference() ? c10::VariableVersion() : impl->version_counter();
  return at::Tensor(impl->shallow_copy_and_detach(counter, false));
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

void set_stop_class(py::object value) { stop_class() = std::move(value); }

Counters& counters() {
  static Counters instance;
  return instance;
}

Frame::Frame(std::shared_ptr<Policy> policy) { push_policy(std::move(policy)); }

std::shared_ptr<Frame> Frame::current() { return t_frames.empty() ? nullptr : t_frames.back(); }

size_t Frame::push_policy(std::shared_ptr<Policy> policy) {
  scopes_.push_back({std::move(policy), {}, {}});
  return scopes_.size() - 1;
}

void Frame::pop_policy() { scopes_.pop_back(); }

void Frame::push_module(size_t scope, std::string path) {
  if (scope < scopes_.size()) scopes_[scope].modules.push_back(std::move(path));
}

void Frame::pop_module(size_t scope) {
  if (scope < scopes_.size() && !scopes_[scope].modules.empty()) scopes_[scope].modules.pop_back();
}

void Frame::enter() {
  t_frames.push_back(shared_from_this());
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, true);
}

void Frame::leave() {
  scopes_.resize(1);
  scopes_.front().modules.clear();
  const std::shared_ptr<Frame> self = std::move(t_frames.back());
  t_frames.pop_back();
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, !t_frames.empty());
}

void Frame::finish_forward() {
  ++counters().regions;
  {
    // From here on the caller may change what it got, and the file must hold what it was.
    const py::gil_scoped_release release;
    for (const auto& extent : extents_) extent->arena->finish_write(extent);
  }
  forward_finished_ = true;
  made_here_.clear();
  held_.clear();
  kept_by_storage_.clear();
  if (extents_.empty()) return;
  previous_ = g_newest_with_extents;
  g_newest_with_extents = weak_from_this();
}

py::object Frame::pack(const at::Tensor& tensor) {
  if (replaying_) {
    if (collect(tensor)) {
      PyErr_SetNone(stop_class().ptr());
      throw py::error_already_set();
    }
    return py::cast(alias_of(tensor));
  }
  auto slot = std::make_shared<Slot>();
  slot->sizes = tensor.sizes().vec();
  slot->dtype = tensor.scalar_type();
  slot->held_by_autograd = held(tensor, Holder::kAutograd);
  slots_.push_back(slot);
  return py::cast(Handle{shared_from_this(), std::move(slot)});
}

// Whether this was the last value that is wanted.
bool Frame::collect(const at::Tensor& tensor) {
  const size_t index = num_collected_++;
  TORCH_CHECK(index < slots_.size(), "checkpoint: the replay saves more tensors than the ", slots_.size(),
              " of the forward; the function must do the same both times");
  if (const auto slot = slots_[index].lock(); slot && !slot->value.defined()) {
    TORCH_CHECK(tensor.sizes().equals(slot->sizes) && tensor.scalar_type() == slot->dtype, "checkpoint: saved tensor ",
                index, " was ", slot->dtype, " ", at::IntArrayRef(slot->sizes), " in the forward and is ",
                tensor.scalar_type(), " ", tensor.sizes(), " in the replay; the function must do the same both times");
    slot->value = alias_of(tensor);
    slot->version = version_of(tensor);
    slot->held = held(tensor, Holder::kRecomputed);
  }
  for (size_t later = num_collected_; later < slots_.size(); ++later) {
    const auto slot = slots_[later].lock();
    if (slot && !slot->value.defined()) return false;
  }
  return true;
}

// Null for what the region did not make, and where no timeline records.
std::shared_ptr<HeldBytes> Frame::held(const at::Tensor& tensor, Holder holder) {
  if (!tensor.has_storage()) return nullptr;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (read_back_.contains(storage)) {
    holder = Holder::kSwapBuffer;
  } else if (!made_here_.contains(storage)) {
    return nullptr;
  }
  std::weak_ptr<HeldBytes>& known = held_[storage];
  std::shared_ptr<HeldBytes> result = known.lock();
  if (!result) known = result = HeldBytes::make(holder, static_cast<int64_t>(storage->nbytes()));
  return result;
}

at::Tensor Frame::unpack(const py::object& packed) {
  if (!py::isinstance<Handle>(packed)) return packed.cast<at::Tensor>();
  const Handle handle = packed.cast<Handle>();
  TORCH_CHECK_NOT_IMPLEMENTED(handle.frame->forward_finished_,
                              "checkpoint: backward runs through a region whose forward has not ended; "
                              "differentiate outside of the region");
  if (!handle.slot->value.defined()) handle.frame->replay(handle.frame);
  TORCH_CHECK(handle.slot->value.defined(),
              "checkpoint: the replay saves fewer tensors than the forward; the function must do the same both times");
  // Stays until the node lets go of what it saved: a node may unpack it more than once.
  const at::Tensor& value = handle.slot->value;
  TORCH_CHECK(version_of(value) == handle.slot->version, "checkpoint: a tensor saved for backward (",
              handle.slot->dtype, " ", at::IntArrayRef(handle.slot->sizes),
              ") was changed in place after it was saved: it is at version ", version_of(value), ", expected version ",
              handle.slot->version);
  return alias_of(value);
}

std::vector<std::pair<std::optional<at::Tensor>, std::string>> Frame::changed_tensors() const {
  std::vector<std::pair<std::optional<at::Tensor>, std::string>> changed;
  for (const auto& [storage, external] : external_) {
    if (external.bytes_before.defined() || !external.counter.enabled()) continue;
    if (external.counter.current_version() == external.version) continue;
    const auto tensor = external.tensor.lock();
    changed.emplace_back(tensor ? std::optional(at::Tensor(tensor)) : std::nullopt, external.used_by);
  }
  return changed;
}

void Frame::begin_replay() {
  ++counters().replays;
  prefetch();
  replaying_ = true;
  num_collected_ = 0;
  for (auto& [schema, record] : records_) record.num_replayed = 0;
  const UnseenGuard unseen;
  for (auto& [generator, state] : generators_) {
    const std::lock_guard lock(generator.mutex());
    generators_now_.emplace_back(generator, generator.get_state());
    generator.set_state(state);
  }
  for (auto& [address, external] : external_) {
    if (!external.bytes_before.defined()) continue;
    const auto storage = external.storage.lock();
    // A storage that was emptied meanwhile (as FSDP does) is filled again by its owner.
    if (!storage || static_cast<int64_t>(storage->nbytes()) != external.bytes_before.numel()) continue;
    at::Tensor bytes = storage_bytes(storage);
    const uint32_t version = external.counter.enabled() ? external.counter.current_version() : 0;
    bytes_now_.emplace_back(bytes, bytes.clone(), &external, version);
    bytes.copy_(external.bytes_before);
  }
}

void Frame::end_replay() {
  const UnseenGuard unseen;
  for (auto& [bytes, now, external, version] : bytes_now_) {
    bytes.copy_(now);
    if (external->counter.enabled()) external->counter.set_version(version);
  }
  for (auto& [generator, state] : generators_now_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
  bytes_now_.clear();
  generators_now_.clear();
  made_here_.clear();
  read_back_.clear();
  held_.clear();
  replaying_ = false;
}

// This region's bytes in the order of use, then those of the region whose backward comes next.
void Frame::prefetch() {
  for (const auto& extent : extents_) extent->arena->prefetch(extent);
  if (const auto previous = previous_.lock()) {
    for (const auto& extent : previous->extents_) extent->arena->prefetch(extent);
  }
}

}  // namespace qx::activation
