// Runs the regions of a fusion on the right inputs and compares what they give with the right outputs.
#pragma once

#include <gtest/gtest.h>

#include "compiler/codegen/program_builder.h"
#include "compiler/graph_interpreter.h"
#include "quincunx/compiler/compiler.h"

namespace qx::compiler {

// Inputs drawn from [-1.5, 1.5] by `seed`; each region alone, on inputs of the interpreter rounded to their dtype.
// `tolerance` is relative to the largest element of an output, at least 1.
inline void expectRegionsRight(const graph::Graph& graph, const Fusion& fusion, const std::vector<int64_t>& symbols,
                               uint64_t seed, double tolerance) {
  GraphInterpreter right(graph, symbols);
  for (const graph::ValueId input : graph.inputs) {
    Array& array = right.values[input];
    for (const graph::Dim& dim : graph.values[input].type.shape) array.shape.push_back(right.sizeOf(dim));
    array.data.resize(countOf(array.shape));
    for (double& number : array.data) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      number = static_cast<float>(static_cast<double>(seed >> 40) / (1 << 24) * 3 - 1.5);
    }
  }
  right.run();
  for (const Region& region : fusion.regions) {
    std::vector<OwnedTensor> tensors;
    std::vector<TensorView> inputs, outputs;
    const auto tensorOf = [&](graph::ValueId value, bool fill) {
      const Array& array = right.values.at(value);
      OwnedTensor tensor(graph.values[value].type.dtype, array.shape);
      for (int64_t i = 0; fill && i < tensor.size(); ++i) tensor.set(i, array.data[i]);
      return tensor;
    };
    for (const graph::ValueId value : region.inputs) tensors.push_back(tensorOf(value, true));
    for (const graph::ValueId value : region.outputs) tensors.push_back(tensorOf(value, false));
    for (size_t i = 0; i < tensors.size(); ++i)
      (i < region.inputs.size() ? inputs : outputs).push_back(tensors[i].view());
    const Status status = region.kernel->run(inputs, outputs, symbols);
    ASSERT_TRUE(status.ok()) << region.name << ": " << status;
    for (size_t i = 0; i < region.outputs.size(); ++i) {
      const Array& expected = right.values.at(region.outputs[i]);
      double largest = 1;
      for (const double number : expected.data) largest = std::max(largest, std::fabs(number));
      for (size_t j = 0; j < expected.data.size(); ++j) {
        ASSERT_NEAR(tensors[region.inputs.size() + i].get(static_cast<int64_t>(j)), expected.data[j],
                    tolerance * largest)
            << region.name << " output " << i << " element " << j << "\n"
            << graph::to_text(graph) << region.kernel->to_string();
      }
    }
  }
}

}  // namespace qx::compiler
