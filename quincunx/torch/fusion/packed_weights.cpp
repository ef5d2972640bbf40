#include "quincunx/torch/fusion/packed_weights.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <shared_mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {

using torch::stable::Tensor;

namespace {

// visit(element) for one element of each row and of each column at least, off the diagonals: whole rows, columns and
// triangles that change are seen.
template <typename Visit>
bool all_samples(const TensorView& matrix, const Visit& visit) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  if (rows == 0 || columns == 0) return true;
  int64_t step = std::max<int64_t>(1, columns * 5 / 8);
  while (std::gcd(step, columns) != 1) ++step;
  int64_t row = 0, column = 0;
  for (int64_t i = 0; i < std::max(rows, columns); ++i) {
    if (!visit(matrix.data_as<const float>()[row * matrix.stride(0) + column * matrix.stride(1)])) return false;
    if (++row == rows) row = 0;
    column += step;
    if (column >= columns) column -= columns;
  }
  return true;
}

using Samples = std::vector<float>;

Samples samples_of(const TensorView& matrix) {
  Samples samples;
  all_samples(matrix, [&](float element) {
    samples.push_back(element);
    return true;
  });
  return samples;
}

// Bits: a NaN equals itself.
bool has_samples(const TensorView& matrix, const Samples& samples) {
  auto expected = samples.begin();
  return all_samples(
      matrix, [&](float element) { return std::bit_cast<uint32_t>(element) == std::bit_cast<uint32_t>(*expected++); });
}

// Tensors of inference mode count no versions.
bool counts_versions(const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::is_inference", "", stack.data(), TORCH_ABI_VERSION));
  return !torch::stable::detail::to<bool>(stack[0]);
}

int64_t version_of(const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::_version", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<int64_t>(stack[0]);
}

// Another tensor on the same memory: it keeps the address from being given to others, but not the weight itself, whose
// end drops the entry.
Tensor alias_of(const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::detach", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// quincunx::watch_weight is Python's: it calls drop_packed_weight(entry) when the tensor's Python object ends.
void watch(const Tensor& weight, int64_t entry) {
  std::array<StableIValue, 2> stack{torch::stable::detail::from(weight), torch::stable::detail::from(entry)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("quincunx::watch_weight", "", stack.data(), TORCH_ABI_VERSION));
}

// The memory of a right operand and how it lies there.
using Place = std::tuple<const void*, int64_t, int64_t, int64_t, int64_t>;

Place place_of(const TensorView& matrix) {
  return {matrix.data(), matrix.size(0), matrix.size(1), matrix.stride(0), matrix.stride(1)};
}

}  // namespace

class PackedWeight {
 public:
  PackedWeight(const Tensor& weight, const TensorView& matrix, int64_t version)
      : alias_(alias_of(weight)), version_(version), samples_(samples_of(matrix)) {
    const int64_t size = value_or_throw(kernels::packed_matrix_size(matrix.size(0), matrix.size(1)));
    packed_.emplace(torch::stable::new_empty(weight, {&size, 1}));
    floats_ = std::span<float>(static_cast<float*>(packed_->mutable_data_ptr()), static_cast<size_t>(size));
    value_or_throw(kernels::pack_b(matrix, floats_));
  }

  bool is_of(const TensorView& matrix, int64_t version) const {
    return version == version_ && has_samples(matrix, samples_);
  }
  std::span<const float> floats() const { return floats_; }

 private:
  Tensor alias_;
  int64_t version_;
  Samples samples_;
  std::optional<Tensor> packed_;
  std::span<float> floats_;
};

namespace {

struct Entry {
  int64_t number = 0;
  std::shared_ptr<const PackedWeight> packed;
};

struct Registry {
  std::shared_mutex mutex;
  std::map<Place, Entry> entries;
  int64_t next_number = 0;
  std::atomic<int64_t> made = 0;
  std::atomic<int64_t> used = 0;
};

// Never destroyed: threads may still multiply while the process exits.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

std::shared_ptr<const PackedWeight> find_or_pack(const Tensor& weight, const TensorView& right_operand) {
  if (!counts_versions(weight)) return nullptr;
  Registry& all = registry();
  const Place place = place_of(right_operand);
  {
    std::shared_lock lock(all.mutex);
    const auto found = all.entries.find(place);
    if (found != all.entries.end() && found->second.packed->is_of(right_operand, version_of(weight))) {
      all.used.fetch_add(1, std::memory_order_relaxed);
      return found->second.packed;
    }
  }
  auto packed = std::make_shared<const PackedWeight>(weight, right_operand, version_of(weight));
  all.made.fetch_add(1, std::memory_order_relaxed);
  int64_t number = -1;
  std::shared_ptr<const PackedWeight> before;  // released without the lock
  {
    std::unique_lock lock(all.mutex);
    Entry& entry = all.entries[place];
    if (entry.packed == nullptr) entry.number = number = all.next_number++;
    before = std::exchange(entry.packed, packed);
  }
  if (number >= 0) watch(weight, number);
  return packed;
}

std::span<const float> packed_floats(const PackedWeight& packed) { return packed.floats(); }

void drop_packed_weight(int64_t entry) {
  Registry& all = registry();
  std::shared_ptr<const PackedWeight> dropped;
  std::unique_lock lock(all.mutex);
  for (auto found = all.entries.begin(); found != all.entries.end(); ++found) {
    if (found->second.number != entry) continue;
    dropped = std::move(found->second.packed);
    all.entries.erase(found);
    lock.unlock();
    return;
  }
}

PackedWeightCounters packed_weight_counters() {
  Registry& all = registry();
  std::shared_lock lock(all.mutex);
  PackedWeightCounters counters{all.made, all.used, static_cast<int64_t>(all.entries.size()), 0};
  for (const auto& [place, entry] : all.entries) {
    counters.bytes += static_cast<int64_t>(entry.packed->floats().size_bytes());
  }
  return counters;
}

}  // namespace qx::torch_bridge
