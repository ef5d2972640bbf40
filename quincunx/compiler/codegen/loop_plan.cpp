#include "quincunx/compiler/codegen/loop_plan.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace qx::compiler {
namespace {

constexpr int kMaxAxes = LoopProgram::kMaxAxes;

// One axis of this call, or several that every view walks as if they were one.
struct Loop {
  int64_t size = 1;
  bool reduced = false;
  std::array<int64_t, LoopProgram::kMaxViews> strides{};  // bytes
};

std::string shapeText(const graph::TensorType& type, std::span<const int64_t> symbols) {
  std::string text(dtype_name(type.dtype));
  text += "[";
  for (size_t dim = 0; dim < type.shape.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(evaluate(type.shape[dim], symbols.data()));
  }
  return text + "]";
}

Status checkTensor(const std::string& name, const TensorView& view, const graph::TensorType& type,
                   std::span<const int64_t> symbols) {
  bool fits = view.dtype() == type.dtype && view.num_dims() == static_cast<int>(type.shape.size());
  for (size_t dim = 0; fits && dim < type.shape.size(); ++dim) {
    fits = view.size(static_cast<int>(dim)) == evaluate(type.shape[dim], symbols.data());
  }
  if (!fits) return invalid_argument(name + " is " + view.to_string() + ", expected " + shapeText(type, symbols));
  if (view.device().device_type != kDLCPU) return invalid_argument(name + " is not on the CPU");
  return ok_status();
}

// Symbols that a size mentions, counted from 1.
int32_t lastSymbol(const graph::Dim& dim) { return dim.is_known() ? 0 : dim.symbol + 1; }

struct Extent {
  const char* begin;
  const char* end;
};

Extent extentOf(const TensorView& view) {
  const auto* data = static_cast<const char*>(view.data());
  Extent extent{data, data};
  if (view.num_elements() == 0) return extent;
  const int64_t element = dtype_size_bytes(view.dtype());
  for (int dim = 0; dim < view.num_dims(); ++dim) {
    const int64_t reach = (view.size(dim) - 1) * view.stride(dim) * element;
    (reach < 0 ? extent.begin : extent.end) += reach;
  }
  extent.end += element;
  return extent;
}

bool overlap(const TensorView& a, const TensorView& b) {
  const Extent first = extentOf(a);
  const Extent second = extentOf(b);
  return first.begin < second.end && second.begin < first.end;
}

Status checkOverlaps(std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = "outputs[" + std::to_string(i) + "]";
    if (!outputs[i].has_distinct_elements()) {
      return invalid_argument(name + ": elements share memory, expected strides that keep them apart");
    }
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (overlap(outputs[i], inputs[j])) {
        return invalid_argument(name + " overlaps inputs[" + std::to_string(j) + "], expected memory of its own");
      }
    }
    for (size_t j = 0; j < i; ++j) {
      if (overlap(outputs[i], outputs[j])) {
        return invalid_argument(name + " overlaps outputs[" + std::to_string(j) + "], expected memory of its own");
      }
    }
  }
  return ok_status();
}

// Where a view starts, and the bytes that a step of each axis moves it.
Status placeView(const LoopProgram& program, size_t index, const TensorView& tensor, std::span<const int64_t> symbols,
                 std::span<Loop> axes, void*& base) {
  const View& view = program.views[index];
  const int64_t element = dtype_size_bytes(tensor.dtype());
  auto* address = static_cast<char*>(tensor.data());
  for (size_t dim = 0; dim < view.dims.size(); ++dim) {
    const ViewDim& walk = view.dims[dim];
    const int64_t bytes = tensor.stride(static_cast<int>(dim)) * element;
    const int64_t start = evaluate(walk.start, symbols.data());
    int64_t count = 1;
    for (size_t i = walk.axes.size(); i-- > 0;) {
      axes[walk.axes[i]].strides[index] = bytes * walk.step * count;
      count *= axes[walk.axes[i]].size;
    }
    const int64_t last = start + walk.step * (count - 1);
    const int64_t size = tensor.size(static_cast<int>(dim));
    if (count > 0 && (start < 0 || last < 0 || start >= size || last >= size)) {
      return invalid_argument("dim " + std::to_string(dim) + " of tensor " + std::to_string(view.tensor) +
                              " has size " + std::to_string(size) + ", expected more than " +
                              std::to_string(std::max(start, last)));
    }
    address += start * bytes;
  }
  base = address;
  return ok_status();
}

// Whether `outer` and `inner` can be one loop for every view.
bool canMerge(const Loop& outer, const Loop& inner, size_t num_views) {
  for (size_t view = 0; view < num_views; ++view) {
    if (outer.strides[view] != inner.strides[view] * inner.size) return false;
  }
  return outer.reduced == inner.reduced;
}

// Merges neighbours, in any order of the list; the inner loop's strides stay.
void mergeLoops(std::vector<Loop>& loops, size_t num_views) {
  std::erase_if(loops, [](const Loop& loop) { return loop.size == 1; });
  for (size_t i = 0; i < loops.size(); ++i) {
    for (size_t j = loops.size(); j-- > 0;) {
      if (i == j || !canMerge(loops[j], loops[i], num_views)) continue;
      loops[i].size *= loops[j].size;
      loops.erase(loops.begin() + static_cast<int64_t>(j));
      i -= j < i ? 1 : 0;
      j = loops.size();  // another may fit around the longer loop now
    }
  }
}

// Takes the loop out of `loops` that most views walk element by element; of equals the last.
Loop takeVectorLoop(const LoopProgram& program, std::vector<Loop>& loops) {
  if (loops.empty()) return {};
  size_t best = 0;
  int best_score = -1;
  for (size_t i = 0; i < loops.size(); ++i) {
    int score = 0;
    for (size_t view = 0; view < program.views.size(); ++view) {
      const int64_t element = dtype_size_bytes(program.tensorType(program.views[view].tensor).dtype);
      score += loops[i].strides[view] == element ? 1 : 0;
    }
    if (score >= best_score) {
      best = i;
      best_score = score;
    }
  }
  const Loop chosen = loops[best];
  loops.erase(loops.begin() + static_cast<int64_t>(best));
  return chosen;
}

VectorStride classOf(int64_t stride, int64_t element, int64_t size, VectorStride expected) {
  if (size == 1) return expected;
  return stride == element ? VectorStride::kUnit : stride == 0 ? VectorStride::kZero : VectorStride::kOther;
}

void setInnerLoop(const LoopSignature& signature, int position, const Loop& loop, LoopPlan& plan) {
  plan.sizes[position] = loop.size;
  for (size_t view = 0; view < signature.program().views.size(); ++view) {
    plan.strides[view * signature.numLoops() + position] = loop.strides[view];
  }
}

}  // namespace

LoopSignature::LoopSignature(const LoopProgram& program) : program_(program) {
  for (const Axis& axis : program.axes) {
    num_reduced_ += axis.reduced ? 1 : 0;
    num_symbols_ = std::max(num_symbols_, lastSymbol(axis.size));
  }
  vector_is_reduced_ = !program.axes.empty() && program.axes.back().reduced;
  const auto mention = [&](const graph::Dim& dim) { num_symbols_ = std::max(num_symbols_, lastSymbol(dim)); };
  for (const auto& type : program.inputs) std::ranges::for_each(type.shape, mention);
  for (const auto& type : program.outputs) std::ranges::for_each(type.shape, mention);
  for (const auto& scalar : program.scalars) std::ranges::for_each(scalar, mention);
  for (const View& view : program.views) {
    for (const ViewDim& dim : view.dims) mention(dim.start);
  }
  for (const Instruction& code : program.code) {
    needs_elements_ |= code.opcode == Opcode::kReduceMax || code.opcode == Opcode::kReduceMin;
  }
  const auto last = static_cast<int32_t>(program.axes.size()) - 1;
  for (const View& view : program.views) {
    const bool walks = !view.dims.empty() && std::ranges::count(view.dims.back().axes, last) != 0;
    const bool elsewhere =
        std::ranges::any_of(view.dims, [&](const ViewDim& dim) { return std::ranges::count(dim.axes, last) != 0; });
    const bool unit = walks && view.dims.back().axes.back() == last && view.dims.back().step == 1;
    const bool is_output = view.tensor >= static_cast<int32_t>(program.inputs.size());
    expected_strides_.push_back(unit || (is_output && !elsewhere) ? VectorStride::kUnit
                                : elsewhere                       ? VectorStride::kOther
                                                                  : VectorStride::kZero);
  }
}

Status LoopSignature::check(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                            std::span<const int64_t> symbols) const {
  const auto counted = [](const char* name, size_t got, size_t expected) {
    return invalid_argument(std::string(name) + " has " + std::to_string(got) + " entries, expected " +
                            std::to_string(expected));
  };
  if (inputs.size() != program_.inputs.size()) return counted("inputs", inputs.size(), program_.inputs.size());
  if (outputs.size() != program_.outputs.size()) return counted("outputs", outputs.size(), program_.outputs.size());
  if (symbols.size() < static_cast<size_t>(num_symbols_)) {
    return counted("symbols", symbols.size(), static_cast<size_t>(num_symbols_));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    QX_RETURN_IF_ERROR(checkTensor("inputs[" + std::to_string(i) + "]", inputs[i], program_.inputs[i], symbols));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    QX_RETURN_IF_ERROR(checkTensor("outputs[" + std::to_string(i) + "]", outputs[i], program_.outputs[i], symbols));
  }
  int64_t kept = 1;
  int64_t reduced = 1;
  for (const Axis& axis : program_.axes) (axis.reduced ? reduced : kept) *= evaluate(axis.size, symbols.data());
  if (needs_elements_ && reduced == 0 && kept != 0) {
    return invalid_argument("a maximum or minimum over dims of 0 elements has no value");
  }
  return checkOverlaps(inputs, outputs);
}

Status makePlan(const LoopSignature& signature, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                std::span<const int64_t> symbols, LoopPlan& plan) {
  const LoopProgram& program = signature.program();
  const size_t num_views = program.views.size();
  std::array<Loop, kMaxAxes> axes;
  for (size_t axis = 0; axis < program.axes.size(); ++axis) {
    axes[axis].size = evaluate(program.axes[axis].size, symbols.data());
    axes[axis].reduced = program.axes[axis].reduced;
  }
  for (size_t view = 0; view < num_views; ++view) {
    const auto tensor = static_cast<size_t>(program.views[view].tensor);
    const TensorView& placed = tensor < inputs.size() ? inputs[tensor] : outputs[tensor - inputs.size()];
    QX_RETURN_IF_ERROR(placeView(program, view, placed, symbols, axes, plan.views[view]));
  }
  std::vector<Loop> outer, reduced;
  for (size_t axis = 0; axis < program.axes.size(); ++axis)
    (axes[axis].reduced ? reduced : outer).push_back(axes[axis]);
  mergeLoops(outer, num_views);
  mergeLoops(reduced, num_views);
  const Loop vector = takeVectorLoop(program, signature.vectorIsReduced() ? reduced : outer);

  const int num_inner = signature.numLoops();
  const int first_reduced = num_inner - 1 - static_cast<int>(reduced.size());
  for (int position = 1; position < num_inner - 1; ++position) {
    setInnerLoop(signature, position, position < first_reduced ? Loop{} : reduced[position - first_reduced], plan);
  }
  setInnerLoop(signature, num_inner - 1, vector, plan);
  setInnerLoop(signature, 0, outer.empty() ? Loop{} : outer.back(), plan);
  for (size_t view = 0; view < num_views; ++view) {
    const int64_t element = dtype_size_bytes(program.tensorType(program.views[view].tensor).dtype);
    // An output that lacks the vector axis is stored once a row: its class has no meaning.
    const bool once = vector.strides[view] == 0 && program.views[view].tensor >= static_cast<int32_t>(inputs.size());
    const VectorStride expected = signature.expectedStrides()[view];
    plan.vector_strides[view] = once ? expected : classOf(vector.strides[view], element, vector.size, expected);
  }
  for (const Loop& loop : reduced) plan.reduced_elements *= loop.size;
  plan.row_elements = plan.reduced_elements * vector.size;
  plan.num_outer = static_cast<int>(outer.size());
  for (int loop = 0; loop < plan.num_outer; ++loop) {
    plan.outer_sizes[loop] = outer[loop].size;
    plan.num_rows *= outer[loop].size;
    for (size_t view = 0; view < num_views; ++view) plan.outer_strides[view][loop] = outer[loop].strides[view];
  }
  return ok_status();
}

}  // namespace qx::compiler
