#include "quincunx/tile/binding.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>

namespace qx::tile {
namespace {

// What an error calls a tensor: made where there is one.
struct Place {
  const char* list;
  size_t index;
  std::string text() const { return std::string(list) + "[" + std::to_string(index) + "]"; }
};

Status check_tensor(const Place& where, const Tensor& tensor, const TensorView& view) {
  if (view.dtype() == tensor.dtype && view.num_dims() == static_cast<int>(tensor.axes.size())) return ok_status();
  return invalid_argument(where.text() + ": expected a " + std::string(dtype_name(tensor.dtype)) + " tensor of " +
                          std::to_string(tensor.axes.size()) + " dims, got " + view.to_string());
}

// A size other than 1 decides.
Status take_sizes(const Place& where, const Tensor& tensor, const TensorView& view, AxisNumbers& sizes) {
  for (size_t dim = 0; dim < tensor.axes.size(); ++dim) {
    int64_t& size = sizes[static_cast<size_t>(tensor.axes[dim])];
    const int64_t given = view.size(static_cast<int>(dim));
    if (given == 1 || given == size) continue;
    if (size != 1) {
      return invalid_argument(where.text() + ": expected size " + std::to_string(size) + " or 1 in dim " +
                              std::to_string(dim) + ", got " + view.to_string());
    }
    size = given;
  }
  return ok_status();
}

Status check_output(const Place& where, const Tensor& tensor, const TensorView& view, const AxisNumbers& sizes) {
  for (size_t dim = 0; dim < tensor.axes.size(); ++dim) {
    const int64_t size = sizes[static_cast<size_t>(tensor.axes[dim])];
    if (view.size(static_cast<int>(dim)) != size) {
      return invalid_argument(where.text() + ": expected size " + std::to_string(size) + " in dim " +
                              std::to_string(dim) + ", got " + view.to_string());
    }
  }
  return ok_status();
}

BoundTensor bound(const Tensor& tensor, const TensorView& view, size_t num_axes) {
  BoundTensor result{.dtype = tensor.dtype, .data = view.data_as<char>(), .strides = {}};
  result.strides = AxisNumbers(num_axes, 0);
  for (size_t dim = 0; dim < tensor.axes.size(); ++dim) {
    const auto index = static_cast<int>(dim);
    result.strides[static_cast<size_t>(tensor.axes[dim])] = view.size(index) == 1 ? 0 : view.stride(index);
  }
  return result;
}

// Puts the axes in the order in which the outputs lie in memory, so that rows are contiguous. The last one stays where
// it is what a row means.
void order_axes(Binding& binding, bool row_is_free) {
  const auto step = [&](size_t axis) {
    int64_t largest = 0;
    for (const BoundTensor& tensor : binding.outputs) largest = std::max(largest, std::abs(tensor.strides[axis]));
    return binding.sizes[axis] == 1 ? std::numeric_limits<int64_t>::max() : largest;
  };
  std::array<size_t, Program::kMaxAxes> axes;
  const std::span<size_t> order(axes.data(), binding.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), row_is_free ? order.end() : order.end() - 1,
            [&](size_t a, size_t b) { return step(a) != step(b) ? step(a) > step(b) : a < b; });
  const auto reorder = [&](AxisNumbers& numbers) {
    const AxisNumbers old = numbers;
    for (size_t i = 0; i < order.size(); ++i) numbers[i] = old[order[i]];
  };
  if (std::ranges::is_sorted(order)) return;
  reorder(binding.sizes);
  for (BoundTensor& tensor : binding.inputs) reorder(tensor.strides);
  for (BoundTensor& tensor : binding.outputs) reorder(tensor.strides);
}

bool walks_as_one(const std::vector<BoundTensor>& tensors, size_t axis, int64_t inner_size) {
  return std::ranges::all_of(tensors, [&](const BoundTensor& tensor) {
    return tensor.strides[axis] == tensor.strides[axis + 1] * inner_size;
  });
}

void merge_axes(Binding& binding, bool row_is_free) {
  for (size_t axis = binding.sizes.size() - 1; axis-- > 0;) {
    if (axis + 2 == binding.sizes.size() && !row_is_free) continue;
    const int64_t inner = binding.sizes[axis + 1];
    if (!walks_as_one(binding.inputs, axis, inner) || !walks_as_one(binding.outputs, axis, inner)) continue;
    binding.sizes[axis + 1] *= binding.sizes[axis];
    binding.sizes.erase(axis);
    for (auto* tensors : {&binding.inputs, &binding.outputs}) {
      for (BoundTensor& tensor : *tensors) {
        tensor.strides.erase(axis);
      }
    }
  }
}

}  // namespace

int64_t Binding::num_rows() const {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < sizes.size(); ++axis) rows *= sizes[axis];
  return rows;
}

Result<Binding> bind(const Program& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  if (inputs.size() != program.inputs.size() || outputs.size() != program.outputs.size()) {
    return invalid_argument("inputs, outputs: expected " + std::to_string(program.inputs.size()) + " and " +
                            std::to_string(program.outputs.size()) + ", got " + std::to_string(inputs.size()) +
                            " and " + std::to_string(outputs.size()));
  }
  const size_t num_axes = std::max<size_t>(1, static_cast<size_t>(program.num_axes));
  Binding binding;
  binding.sizes = AxisNumbers(num_axes, 1);
  const auto input_name = [](size_t i) { return Place{"inputs", i}; };
  const auto output_name = [](size_t i) { return Place{"outputs", i}; };
  binding.inputs.reserve(inputs.size());
  binding.outputs.reserve(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    QX_RETURN_IF_ERROR(check_tensor(input_name(i), program.inputs[i], inputs[i]));
    QX_RETURN_IF_ERROR(take_sizes(input_name(i), program.inputs[i], inputs[i], binding.sizes));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    QX_RETURN_IF_ERROR(check_tensor(output_name(i), program.outputs[i], outputs[i]));
    QX_RETURN_IF_ERROR(take_sizes(output_name(i), program.outputs[i], outputs[i], binding.sizes));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    QX_RETURN_IF_ERROR(check_output(output_name(i), program.outputs[i], outputs[i], binding.sizes));
    binding.outputs.push_back(bound(program.outputs[i], outputs[i], num_axes));
  }
  for (size_t i = 0; i < inputs.size(); ++i) binding.inputs.push_back(bound(program.inputs[i], inputs[i], num_axes));
  // An output without the last axis holds one element a row: the rows must stay what they are.
  const bool rows_stand_alone =
      std::ranges::any_of(program.code, [](const Instruction& i) { return is_reduction(i.opcode); }) ||
      std::ranges::any_of(program.outputs, [&](const Tensor& t) { return t.axes.size() < num_axes; });
  order_axes(binding, !rows_stand_alone);
  merge_axes(binding, !rows_stand_alone);
  return binding;
}

}  // namespace qx::tile
