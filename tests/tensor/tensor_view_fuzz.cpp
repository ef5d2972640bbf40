// Views made from any numbers stay inside their memory or are refused, and nothing overflows on the way.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "quincunx/base/check.h"
#include "quincunx/tensor/tensor_view.h"

namespace {

constexpr int64_t kNumElements = 64;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  // Any 64-bit number; zeros once the input is used up.
  int64_t number() {
    int64_t value = 0;
    const size_t count = size_ < sizeof(value) ? size_ : sizeof(value);
    if (count == 0) return 0;
    std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }
  // Mostly small numbers, which reach further into the code than those that are refused at once.
  int64_t extent() {
    const int64_t value = number();
    return (value & 1) != 0 ? value : (value >> 1) & 7;
  }
  bool empty() const { return size_ == 0; }

 private:
  const uint8_t* data_;
  size_t size_;
};

void check_inside(const qx::TensorView& view, const float* memory) {
  if (view.num_elements() == 0) return;
  int64_t lowest = view.data_as<float>() - memory;
  int64_t highest = lowest;
  for (int dim = 0; dim < view.num_dims(); ++dim) {
    const int64_t reach = (view.size(dim) - 1) * view.stride(dim);
    (reach < 0 ? lowest : highest) += reach;
  }
  QX_CHECK(lowest >= 0 && highest < kNumElements);
}

qx::Result<qx::TensorView> derived(const qx::TensorView& view, Input& input) {
  const int dim = static_cast<int>(input.extent());
  switch (input.number() & 3) {
    case 0: {
      const int64_t begin = input.extent();
      const int64_t end = input.extent();
      return view.slice(dim, begin, end, input.extent());
    }
    case 1: return view.select(dim, input.extent());
    case 2: return view.transpose(dim, static_cast<int>(input.extent()));
    default: {
      const std::vector<int64_t> shape = {input.extent(), input.extent()};
      return view.reshape(shape);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static float memory[kNumElements];
  Input input(data, size);
  std::vector<int64_t> shape(static_cast<size_t>(input.number() & 15));
  for (int64_t& extent : shape) extent = input.extent();
  qx::Result<qx::TensorView> view = qx::TensorView::contiguous(memory, qx::DType::kFloat32, shape);
  if (!view.ok() || view->num_elements() > kNumElements) return 0;
  while (!input.empty()) {
    const qx::Result<qx::TensorView> next = derived(*view, input);
    if (!next.ok()) continue;
    check_inside(*next, memory);
    view = next;
  }
  return 0;
}
