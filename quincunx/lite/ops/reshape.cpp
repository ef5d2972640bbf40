#include "quincunx/lite/ops/reshape.h"

#include <string>

namespace qx::lite {
namespace {

Status fill_in(const TensorView& x, std::vector<int64_t>& shape) {
  int64_t known = 1;
  int64_t* open = nullptr;
  for (int64_t& size : shape) {
    if (size == -1 && open == nullptr) {
      open = &size;
    } else if (size < 0) {
      return invalid_argument("shape: expected sizes of 0 and more, and at most one -1, got " + std::to_string(size));
    } else if (__builtin_mul_overflow(known, size, &known)) {
      return invalid_argument("shape: the number of elements overflows 64 bits");
    }
  }
  const int64_t count = x.num_elements();
  if (open != nullptr && known > 0 && count % known == 0) {
    *open = count / known;
    known *= *open;
  }
  if (known != count || (open != nullptr && *open == -1)) {
    return invalid_argument("shape: expected " + std::to_string(count) + " elements, those of " + x.to_string());
  }
  return ok_status();
}

// Strides for `shape`, built from the last dimension of `x` outwards: each run of x's dimensions that step evenly may
// be cut anew. False where a new dimension would span two runs.
bool strides_for(const TensorView& x, const std::vector<int64_t>& shape, std::vector<int64_t>& strides) {
  std::vector<int> dims;  // without those of size 1, whose strides mean nothing
  for (int dim = 0; dim < x.num_dims(); ++dim) {
    if (x.size(dim) != 1) dims.push_back(dim);
  }
  strides.assign(shape.size(), 0);
  auto target = static_cast<int>(shape.size()) - 1;
  int64_t run_elements = 1;
  int64_t base_stride = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    if (run_elements == 1) base_stride = x.stride(dims[i]);
    run_elements *= x.size(dims[i]);
    if (i > 0 && x.stride(dims[i - 1]) == run_elements * base_stride) continue;
    int64_t taken = 1;
    while (target >= 0 && (taken < run_elements || shape[static_cast<size_t>(target)] == 1)) {
      strides[static_cast<size_t>(target)] = taken * base_stride;
      taken *= shape[static_cast<size_t>(target)];
      --target;
    }
    if (taken != run_elements) return false;
    run_elements = 1;
  }
  return target < 0;
}

}  // namespace

Result<std::optional<TensorView>> reshaped(const TensorView& x, std::vector<int64_t> shape) {
  QX_RETURN_IF_ERROR(fill_in(x, shape));
  if (x.num_elements() <= 1 || x.is_contiguous()) {
    QX_ASSIGN_OR_RETURN(TensorView view, TensorView::contiguous(x.data(), x.dtype(), shape));
    return std::optional(view);
  }
  std::vector<int64_t> strides;
  if (!strides_for(x, shape, strides)) return std::optional<TensorView>();
  QX_ASSIGN_OR_RETURN(TensorView view, TensorView::strided(x.data(), x.dtype(), shape, strides));
  return std::optional(view);
}

}  // namespace qx::lite
