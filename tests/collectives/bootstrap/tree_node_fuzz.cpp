// Any bytes from whoever connects, cut anywhere: a node refuses them or goes on, and what it sends can be read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quincunx/base/check.h"
#include "quincunx/collectives/bootstrap/tree_message.h"
#include "quincunx/collectives/bootstrap/tree_node.h"

namespace {

using namespace qx::collectives;

constexpr int kWorldSize = 5;

void drain(TreeNode& node) {
  while (const auto action = node.take_action()) {
    if (action->kind != TreeAction::Kind::kSend) continue;
    QX_CHECK(decode_tree_message(action->bytes, kWorldSize).ok());
  }
}

}  // namespace

// The first byte says into what pieces the rest is cut, and whether the node is ready before.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  static_cast<void>(decode_tree_message(bytes, kWorldSize));
  TreeOptions options;
  options.world_size = kWorldSize;
  options.host_endpoint = options.local_endpoint = "@x";
  auto node = TreeNode::create(options);
  QX_CHECK(node.ok());
  TreeNode::Time now{std::chrono::hours(1)};
  (*node)->start(now);
  const TreeConnection child = (*node)->on_accepted(now);
  if (data[0] & 1) {
    HelloMessage hello;
    hello.world_size = kWorldSize;
    hello.rank = 1;
    hello.instance = 9;
    hello.subtree = RankSet::range(1, kWorldSize);
    (*node)->on_bytes(child, encode_tree_message(hello), now);
    (*node)->on_bytes(child, encode_tree_message(JoinedMessage{}), now);
  }
  const size_t piece = (size_t{data[0]} >> 1) + 1;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    (*node)->on_bytes(child, bytes.subspan(begin, std::min(piece, bytes.size() - begin)), now);
    drain(**node);
    now += std::chrono::milliseconds(50);
    (*node)->on_timer(now);
  }
  (*node)->on_closed(child, "closed", now);
  drain(**node);
  return 0;
}
