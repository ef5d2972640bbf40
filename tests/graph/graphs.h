// Small graphs that several tests start from.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::graph {

inline std::shared_ptr<const Storage> storage_of(const std::vector<float>& numbers) {
  auto storage = Storage::allocate(static_cast<int64_t>(numbers.size() * sizeof(float))).value();
  if (!numbers.empty()) std::memcpy(storage->mutable_data(), numbers.data(), numbers.size() * sizeof(float));
  return storage;
}

inline TensorType float_type(std::vector<Dim> shape) { return {.dtype = DType::kFloat32, .shape = std::move(shape)}; }

// x[n, 2] -> relu(x @ w[2, 3]), and a state "seen"[3] that becomes seen + seen.
inline Graph small_graph() {
  const Dim n{.value = 0, .multiplier = 1, .symbol = 0};
  Graph graph;
  graph.name = "main";
  graph.symbols = {{.name = "n", .min = 1, .max = 64}};
  graph.constants = {{.storage = storage_of({1, 2, 3, 4, 5, 6}), .offset_bytes = 0},
                     {.storage = storage_of({0, 0, 0}), .offset_bytes = 0}};
  graph.values = {{.name = "x", .type = float_type({n, {.value = 2}}), .constant = -1},
                  {.name = "w", .type = float_type({{.value = 2}, {.value = 3}}), .constant = 0},
                  {.name = "mm", .type = float_type({n, {.value = 3}}), .constant = -1},
                  {.name = "relu", .type = float_type({n, {.value = 3}}), .constant = -1},
                  {.name = "seen", .type = float_type({{.value = 3}}), .constant = 1},
                  {.name = "add", .type = float_type({{.value = 3}}), .constant = -1}};
  graph.nodes = {
      {.op = "aten.mm.default", .name = "mm", .arguments = {TensorRef{0}, TensorRef{1}}, .results = {2}},
      {.op = "aten.relu.default", .name = "relu", .arguments = {TensorRef{2}}, .results = {3}},
      {.op = "aten.add.Tensor", .name = "add", .arguments = {TensorRef{4}, TensorRef{4}, Dim{1}}, .results = {5}}};
  graph.inputs = {0};
  graph.outputs = {3};
  graph.states = {{.name = "seen", .input = 4, .output = 5}};
  return graph;
}

}  // namespace qx::graph
