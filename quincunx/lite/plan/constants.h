// What a method knows before any call: tensors that are constant, and weights in packed form.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/lite/ops/operator.h"

namespace qx::lite {

// Packed weights by the matrix that they were made from: methods that share a weight share its packed form.
class PackCache {
 public:
  // Keeps the storage that `matrix` lies in only through the graphs that hold it.
  Result<const Packed*> pack(const TensorView& matrix);
  Result<const Packed*> pack(const PackRecipe& recipe);
  int64_t size_bytes() const { return size_bytes_; }

 private:
  // Memory, dtype, shape, strides and a recipe's parameters.
  using Key = std::tuple<const void*, DType, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Key, std::unique_ptr<Packed>> entries_;
  int64_t size_bytes_ = 0;
};

// For each value of the graph a view of its memory if it is a constant or a view of one; others have no data. Nodes
// whose arguments are all constant and whose results are no larger than `max_folded_bytes` are computed: their results
// become constants of the graph, and the nodes are removed.
Result<std::vector<TensorView>> fold_constants(graph::Graph& graph, int64_t max_folded_bytes);

// The packed weight of each node, null where it has none.
Result<std::vector<const Packed*>> pack_weights(const graph::Graph& graph, const std::vector<TensorView>& constants,
                                                PackCache& cache);

}  // namespace qx::lite
