// What a method does at a call with given sizes: the order of its operators and where every value lies.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/lite/ops/operator.h"

namespace qx::lite {

// The value of a symbol that no input gives.
inline constexpr int64_t kUnboundSymbol = -1;

// One block of memory, for a value and its views.
struct Buffer {
  enum class Home : uint8_t { kArena, kInput, kState, kOutput };
  Home home = Home::kArena;
  int32_t index = 0;  // of the input, state or output
  int64_t size_bytes = 0;
  int64_t offset_bytes = 0;  // in the arena
};

struct PlannedValue {
  static constexpr int32_t kConstant = -1;
  static constexpr int32_t kAbsent = -2;
  int32_t buffer = kAbsent;
  // Its data is an offset from kBufferBase; the address itself for a constant.
  TensorView view;
};

// Buffers have no address until a call: views of them are made as if each began here.
inline constexpr uintptr_t kBufferBase = uintptr_t{1} << 16;

struct Plan {
  std::vector<int64_t> symbols;
  std::vector<Buffer> buffers;
  std::vector<PlannedValue> values;
  std::vector<int32_t> steps;  // indices of nodes; views and constants need none
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;
  int64_t output_bytes = 0;
};

struct PlanRequest {
  const graph::Graph& graph;
  const std::vector<TensorView>& constants;   // of fold_constants()
  const std::vector<graph::ValueId>& inputs;  // without the states
  std::vector<int64_t> symbols;               // kUnboundSymbol where no input gives it
};

// Results take over the memory of an argument that nobody needs any more where the operator allows it; outputs are
// computed in place where they are not views. Errors name the node.
Result<Plan> make_plan(const PlanRequest& request);

}  // namespace qx::lite
