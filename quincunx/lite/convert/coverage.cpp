#include "quincunx/lite/convert/coverage.h"

#include <string>

#include "quincunx/lite/ops/operator.h"

namespace qx::lite {
namespace {

Status check_node(const graph::Node& node) {
  const Operator* entry = find_operator(node.op);
  if (entry == nullptr) return unimplemented("node '" + node.name + "': the runtime has no operator " + node.op);
  return check_signature(node, *entry);
}

}  // namespace

Status check_operators(const graph::Graph& graph) {
  constexpr int kMaxListed = 20;
  std::string listed;
  int count = 0;
  for (const graph::Node& node : graph.nodes) {
    const Status status = check_node(node);
    if (status.ok()) continue;
    if (++count <= kMaxListed) listed += "\n  " + status.message();
  }
  if (count == 0) return ok_status();
  if (count > kMaxListed) listed += "\n  and " + std::to_string(count - kMaxListed) + " more";
  return unimplemented("method '" + graph.name + "' has " + std::to_string(count) + " of " +
                       std::to_string(graph.nodes.size()) + " nodes that cannot be converted:" + listed +
                       "\nRewrite them in the model with operators of docs/lite.md, or leave that part out.");
}

}  // namespace qx::lite
