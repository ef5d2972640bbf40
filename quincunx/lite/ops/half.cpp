#include "quincunx/lite/ops/half.h"

#include <new>

#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

Result<TensorView> allocate(const TensorView& like, std::unique_ptr<float[]>& storage) {
  const int64_t count = std::max<int64_t>(1, like.num_elements());
  storage.reset(new (std::nothrow) float[static_cast<size_t>(count)]);
  if (storage == nullptr) return resource_exhausted("no memory for an f32 copy of " + like.to_string());
  return TensorView::contiguous(storage.get(), DType::kFloat32, like.shape());
}

}  // namespace

Result<FloatInput> FloatInput::create(const TensorView& view) {
  FloatInput input;
  input.view_ = view;
  if (view.dtype() == DType::kFloat32) return input;
  QX_ASSIGN_OR_RETURN(input.view_, allocate(view, input.copy_));
  QX_RETURN_IF_ERROR(convert_elements(view, input.view_));
  return input;
}

Result<FloatOutput> FloatOutput::create(const TensorView& target) {
  FloatOutput output;
  output.view_ = target;
  output.target_ = target;
  if (target.dtype() == DType::kFloat32) return output;
  QX_ASSIGN_OR_RETURN(output.view_, allocate(target, output.buffer_));
  return output;
}

Status FloatOutput::store() const { return buffer_ == nullptr ? ok_status() : convert_elements(view_, target_); }

}  // namespace qx::lite
