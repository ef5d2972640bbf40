// One run of a checkpointed region: what its forward left behind, and what its replay brings back.
#pragma once

#include <ATen/core/Generator.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <optional>
#include <utility>

#include "quincunx/torch/activation/policy.h"

namespace qx::activation {

// A tensor that an operator made, held in memory or in the arena.
struct KeptTensor {
  at::Tensor memory;
  bool shares_memory = false;  // with the tensor that the region works on; `version` is that one's
  uint32_t version = 0;
  std::shared_ptr<Extent> extent;
  at::Tensor layout;  // on the meta device: sizes, strides and dtype of what is in the arena
  std::shared_ptr<HeldBytes> held;
};

struct KeptCall {
  std::vector<std::optional<KeptTensor>> results;
  bool changed_in_region = false;
  std::optional<std::pair<at::Generator, at::Tensor>> generator_after;
};

struct OperatorRecord {
  int64_t num_forward = 0;
  int64_t num_replayed = 0;
  std::unordered_map<int64_t, KeptCall> kept;
};

struct ExternalTensor {
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  c10::VariableVersion counter;
  uint32_t version = 0;
  std::string used_by;
  at::Tensor bytes_before;  // defined where the region changed it
};

// A tensor that autograd saved in the region; owned by what autograd holds in its place.
struct Slot {
  at::Tensor value;
  uint32_t version = 0;
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  std::shared_ptr<HeldBytes> held_by_autograd;  // without a region
  std::shared_ptr<HeldBytes> held;              // since the replay
};

class Frame;
struct Handle {
  std::shared_ptr<Frame> frame;
  std::shared_ptr<Slot> slot;
};

struct Counters {
  std::atomic<int64_t> regions = 0, replays = 0, inspected = 0, kept_saved = 0, kept_swapped = 0, answered = 0;
};
Counters& counters();

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  explicit Frame(std::shared_ptr<Policy> policy);

  // Autograd's saved-tensor hooks.
  pybind11::object pack(const at::Tensor& tensor);
  static at::Tensor unpack(const pybind11::object& packed);

  // Called in this order by the Python side; leave() ends enter() and begin_replay().
  void enter();
  void finish_forward();
  void begin_replay();
  void end_replay();
  void leave();
  static std::shared_ptr<Frame> current();

  // A region inside this one: its policy decides until pop_policy(). Returns the number that its modules are told with.
  size_t push_policy(std::shared_ptr<Policy> policy);
  void pop_policy();
  void push_module(size_t scope, std::string path);
  void pop_module(size_t scope);

  // One operator below autograd; `keys` are those below the fallback.
  void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);

  // (tensor or None, operator that used it first) of each tensor from outside that changed since.
  std::vector<std::pair<std::optional<at::Tensor>, std::string>> changed_tensors() const;

  pybind11::object replay;  // called with this frame when values are missing

 private:
  struct Scope {
    std::shared_ptr<Policy> policy;
    std::vector<int64_t> counters;
    std::vector<std::string> modules;
  };
  void note_argument(const c10::OperatorHandle& op, const at::Tensor& tensor, bool changed, bool returned);
  void note_generator(const at::Generator& generator);
  void before_change(const c10::OperatorHandle& op, const at::Tensor& tensor, bool returned);
  void keep(OperatorRecord& record, const std::vector<at::Tensor>& results, Action action, KeptCall call);
  void answer(KeptCall& call, const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);
  bool collect(const at::Tensor& tensor);
  std::shared_ptr<HeldBytes> held(const at::Tensor& tensor, Holder holder);
  void prefetch();

  std::vector<Scope> scopes_;
  bool replaying_ = false;
  bool forward_finished_ = false;
  std::vector<std::weak_ptr<Slot>> slots_;
  size_t num_collected_ = 0;
  std::unordered_map<const void*, OperatorRecord> records_;
  std::unordered_map<c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> made_here_;
  std::unordered_map<c10::StorageImpl*, ExternalTensor> external_;
  std::unordered_map<c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> read_back_;
  std::unordered_map<c10::StorageImpl*, std::weak_ptr<HeldBytes>> held_;  // one for all slots of a storage
  std::unordered_map<c10::StorageImpl*, std::vector<KeptCall*>> kept_by_storage_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<std::shared_ptr<Extent>> extents_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_now_;
  std::vector<std::tuple<at::Tensor, at::Tensor, ExternalTensor*, uint32_t>> bytes_now_;
  std::weak_ptr<Frame> previous_;  // the region before this one, whose backward comes after
};

// Makes the exception class that ends a replay early.
void set_stop_class(pybind11::object stop_class);
// Registers the fallback. Throws where another library took its dispatch key.
void install_fallback();

}  // namespace qx::activation
