#include "quincunx/lite/convert/regions.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <utility>

#include "quincunx/compiler/compiler.h"
#include "quincunx/graph/tile_node.h"
#include "quincunx/lite/convert/edit.h"
#include "quincunx/lite/plan/fuse.h"

namespace qx::lite {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

graph::Node tile_node(const compiler::Region& region) {
  std::vector<graph::TensorRef> inputs;
  for (const ValueId id : region.inputs) inputs.push_back({id});
  return {graph::kTileOperator, region.name, {region.kernel->to_string(), std::move(inputs)}, region.outputs};
}

void add_symbols(const Graph& graph, ValueId id, std::set<int32_t>& symbols) {
  for (const graph::Dim& dim : graph.values[static_cast<size_t>(id)].type.shape) {
    if (!dim.is_known()) symbols.insert(dim.symbol);
  }
}

// The runtime learns a size that no input of the method has from the operator that makes it, which a region hides.
bool sizes_are_known(const Graph& graph, const compiler::Region& region) {
  std::set<int32_t> known, needed;
  for (const ValueId id : graph.inputs) add_symbols(graph, id, known);
  for (const ValueId id : region.inputs) add_symbols(graph, id, known);
  for (const ValueId id : region.outputs) add_symbols(graph, id, needed);
  return std::ranges::includes(known, needed);
}

// The nodes in an order in which everything is made before it is read, as near as possible to the order that they have.
std::vector<Node> sorted(const Graph& graph, std::vector<Node> nodes) {
  std::vector<size_t> producer(graph.values.size(), nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId id : nodes[i].results) {
      if (id != kNoValue) producer[static_cast<size_t>(id)] = i;
    }
  }
  std::vector<std::vector<size_t>> users(nodes.size());
  std::vector<size_t> num_missing(nodes.size(), 0);
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for_each_operand(nodes[i], [&](ValueId id) {
      const size_t source = producer[static_cast<size_t>(id)];
      if (source == nodes.size()) return;
      users[source].push_back(i);
      ++num_missing[i];
    });
    if (num_missing[i] == 0) ready.push(i);
  }
  std::vector<Node> result;
  while (!ready.empty()) {
    const size_t next = ready.top();
    ready.pop();
    for (const size_t user : users[next]) {
      if (--num_missing[user] == 0) ready.push(user);
    }
    result.push_back(std::move(nodes[next]));
  }
  return result;
}

}  // namespace

Result<std::vector<TileRegion>> make_tile_regions(Graph& graph) {
  QX_RETURN_IF_ERROR(graph::verify(graph));
  fuse_epilogues(graph);
  remove_dead_code(graph);
  compiler::FuseOptions options;
  options.target = "tile";
  // As one operator it reads its operand in two places, which a tile program cannot; its products and sums fuse.
  options.patterns["rope"] = false;
  QX_ASSIGN_OR_RETURN(const compiler::Fusion fusion, compiler::fuse(graph, options));
  std::vector<TileRegion> made;
  std::vector<const compiler::Region*> last_of(graph.nodes.size(), nullptr);
  std::vector<bool> replaced(graph.nodes.size(), false);
  for (const compiler::Region& region : fusion.regions) {
    if (!sizes_are_known(graph, region)) continue;
    TileRegion& entry = made.emplace_back();
    entry.name = region.name;
    entry.kind = compiler::regionKindName(region.kind);
    for (const int32_t node : region.nodes) {
      replaced[static_cast<size_t>(node)] = true;
      entry.nodes.push_back(graph.nodes[static_cast<size_t>(node)].name);
    }
    last_of[static_cast<size_t>(region.nodes.back())] = &region;
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (last_of[i] != nullptr) nodes.push_back(tile_node(*last_of[i]));
    if (!replaced[i]) nodes.push_back(std::move(graph.nodes[i]));
  }
  const size_t count = nodes.size();
  graph.nodes = sorted(graph, std::move(nodes));
  if (graph.nodes.size() != count) return internal_error("convert: the regions of '" + graph.name + "' form a cycle");
  remove_dead_code(graph);
  QX_RETURN_IF_ERROR(graph::verify(graph));
  return made;
}

}  // namespace qx::lite
