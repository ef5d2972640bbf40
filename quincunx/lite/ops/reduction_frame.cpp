#include <string>

#include "quincunx/lite/ops/call.h"
#include "quincunx/lite/ops/reduction.h"

namespace qx::lite {

Result<ReductionFrame> ReductionFrame::create(const TensorView& x, const std::vector<int64_t>& dims) {
  std::vector<bool> reduces(static_cast<size_t>(x.num_dims()), dims.empty());
  for (const int64_t dim : dims) {
    QX_ASSIGN_OR_RETURN(const int index, normalized_dim(dim, x.num_dims()));
    if (x.num_dims() > 0) reduces[static_cast<size_t>(index)] = true;
  }
  ReductionFrame frame;
  frame.x_ = x;
  for (int dim = 0; dim < x.num_dims(); ++dim) {
    const bool inner = reduces[static_cast<size_t>(dim)];
    (inner ? frame.inner_ : frame.kept_).push_back(dim);
    (inner ? frame.num_reduced_ : frame.num_results_) *= x.size(dim);
  }
  return frame;
}

TensorView ReductionFrame::reduced(int64_t index) const {
  int64_t offset = 0;
  for (size_t i = kept_.size(); i-- > 0;) {
    const int64_t size = x_.size(kept_[i]);
    offset += index % size * x_.stride(kept_[i]);
    index /= size;
  }
  int64_t shape[TensorView::kMaxDims];
  int64_t strides[TensorView::kMaxDims];
  for (size_t i = 0; i < inner_.size(); ++i) {
    shape[i] = x_.size(inner_[i]);
    strides[i] = x_.stride(inner_[i]);
  }
  char* data = x_.data_as<char>() + offset * dtype_size_bytes(x_.dtype());
  return TensorView::strided(data, x_.dtype(), {shape, inner_.size()}, {strides, inner_.size()}).value();
}

}  // namespace qx::lite
