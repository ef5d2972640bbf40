// Loop programs and tensors for tests, written briefly.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "quincunx/compiler/codegen/loop_program.h"
#include "quincunx/tensor/storage.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::compiler {

inline graph::Dim known(int64_t size) { return {.value = size}; }
inline graph::Dim symbol(int32_t index) { return {.value = 0, .multiplier = 1, .symbol = index}; }

// Tensors whose dims are axes: builder.input(DType::kFloat32, {0, 1}) loads x[axis 0, axis 1]; -1 is a dim of size 1.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::vector<Axis> axes) { program_.axes = std::move(axes); }

  int32_t input(DType dtype, const std::vector<int32_t>& axes) {
    const int32_t result = program_.add(Opcode::kLoad, dtype);
    pending_inputs_.push_back({result, typeOf(dtype, axes), axes});
    return result;
  }
  void output(int32_t value, const std::vector<int32_t>& axes) {
    pending_outputs_.push_back({value, typeOf(type(value), axes), axes});
  }
  int32_t apply(Opcode opcode, int32_t a, int32_t b = -1, int32_t c = -1) {
    const bool is_bool = (opcode >= Opcode::kEq && opcode <= Opcode::kGe) || opcode == Opcode::kIsNan;
    return program_.add(opcode, is_bool ? DType::kBool : type(opcode == Opcode::kSelect ? b : a), a, b, c);
  }
  int32_t cast(int32_t value, DType dtype) { return program_.add(Opcode::kCast, dtype, value); }
  int32_t constant(DType dtype, double value) { return program_.constant(dtype, value); }
  // The number of reduced elements as f32.
  int32_t count() {
    std::vector<graph::Dim> dims;
    for (const Axis& axis : program_.axes) {
      if (axis.reduced) dims.push_back(axis.size);
    }
    program_.scalars.push_back(dims);
    const int32_t size = program_.add(Opcode::kScalar, DType::kInt64);
    program_.code.back().index = static_cast<int64_t>(program_.scalars.size()) - 1;
    return cast(size, DType::kFloat32);
  }
  DType type(int32_t value) const { return program_.code[value].dtype; }

  LoopProgram build() {
    for (const auto& [value, type, axes] : pending_inputs_) {
      program_.code[value].index = addView(static_cast<int32_t>(program_.inputs.size()), axes);
      program_.inputs.push_back(type);
    }
    for (const auto& [value, type, axes] : pending_outputs_) {
      program_.add(Opcode::kStore, type.dtype, value);
      program_.code.back().index =
          addView(static_cast<int32_t>(program_.inputs.size() + program_.outputs.size()), axes);
      program_.outputs.push_back(type);
    }
    return program_;
  }

 private:
  struct Pending {
    int32_t value;
    graph::TensorType type;
    std::vector<int32_t> axes;
  };
  graph::TensorType typeOf(DType dtype, const std::vector<int32_t>& axes) const {
    graph::TensorType type{dtype, {}};
    for (const int32_t axis : axes) type.shape.push_back(axis < 0 ? known(1) : program_.axes[axis].size);
    return type;
  }
  int64_t addView(int32_t tensor, const std::vector<int32_t>& axes) {
    View view{tensor, {}};
    for (const int32_t axis : axes) view.dims.push_back(axis < 0 ? ViewDim{} : ViewDim{{axis}, {}, 1});
    program_.views.push_back(view);
    return static_cast<int64_t>(program_.views.size()) - 1;
  }

  LoopProgram program_;
  std::vector<Pending> pending_inputs_;
  std::vector<Pending> pending_outputs_;
};

// A tensor with its own memory. `order`: the dims from the outermost in memory to the innermost; empty: row-major.
class OwnedTensor {
 public:
  OwnedTensor(DType dtype, const std::vector<int64_t>& shape, std::vector<int> order = {}, int64_t gap = 1) {
    if (order.empty()) {
      order.resize(shape.size());
      std::iota(order.begin(), order.end(), 0);
    }
    std::vector<int64_t> strides(shape.size());
    int64_t step = gap;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = step;
      step *= std::max<int64_t>(1, shape[order[i]]);
    }
    storage_ = Storage::allocate(step * dtype_size_bytes(dtype) + 64, {.zero = true}).value();
    view_ = TensorView::strided(storage_->mutable_data(), dtype, shape, strides).value();
  }
  const TensorView& view() const { return view_; }

  // Element number i in row-major order.
  double get(int64_t i) const {
    const char* address = addressOf(i);
    switch (view_.dtype()) {
      case DType::kFloat32: return *reinterpret_cast<const float*>(address);
      case DType::kFloat64: return *reinterpret_cast<const double*>(address);
      case DType::kBFloat16: return static_cast<float>(*reinterpret_cast<const BFloat16*>(address));
      case DType::kFloat16: return static_cast<float>(*reinterpret_cast<const Float16*>(address));
      case DType::kInt64: return static_cast<double>(*reinterpret_cast<const int64_t*>(address));
      case DType::kInt32: return *reinterpret_cast<const int32_t*>(address);
      case DType::kInt16: return *reinterpret_cast<const int16_t*>(address);
      case DType::kInt8: return *reinterpret_cast<const int8_t*>(address);
      default: return *reinterpret_cast<const uint8_t*>(address);
    }
  }
  void set(int64_t i, double value) {
    char* address = const_cast<char*>(addressOf(i));
    switch (view_.dtype()) {
      case DType::kFloat32: *reinterpret_cast<float*>(address) = static_cast<float>(value); return;
      case DType::kFloat64: *reinterpret_cast<double*>(address) = value; return;
      case DType::kBFloat16: *reinterpret_cast<BFloat16*>(address) = BFloat16(static_cast<float>(value)); return;
      case DType::kFloat16: *reinterpret_cast<Float16*>(address) = Float16(static_cast<float>(value)); return;
      case DType::kInt64: *reinterpret_cast<int64_t*>(address) = static_cast<int64_t>(value); return;
      case DType::kInt32: *reinterpret_cast<int32_t*>(address) = static_cast<int32_t>(value); return;
      case DType::kInt16: *reinterpret_cast<int16_t*>(address) = static_cast<int16_t>(value); return;
      case DType::kInt8: *reinterpret_cast<int8_t*>(address) = static_cast<int8_t>(value); return;
      default: *reinterpret_cast<uint8_t*>(address) = static_cast<uint8_t>(value); return;
    }
  }
  int64_t size() const { return view_.num_elements(); }

 private:
  const char* addressOf(int64_t i) const {
    int64_t offset = 0;
    for (int dim = view_.num_dims(); dim-- > 0;) {
      offset += i % view_.size(dim) * view_.stride(dim);
      i /= view_.size(dim);
    }
    return static_cast<const char*>(view_.data()) + offset * dtype_size_bytes(view_.dtype());
  }

  std::shared_ptr<Storage> storage_;
  TensorView view_;
};

}  // namespace qx::compiler
