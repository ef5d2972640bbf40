// What nodes of the bootstrap tree say to each other. A message is its kind (one byte), the length of its body (three
// bytes, little-endian) and the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/rank_set.h"

namespace qx::collectives {

inline constexpr int kMaxTreeWorldSize = 1 << 20;
inline constexpr size_t kTreeHeaderBytes = 4;
inline constexpr size_t kMaxTreeBodyBytes = 1 << 20;
inline constexpr size_t kMaxEndpoints = 16;
inline constexpr size_t kMaxEndpointBytes = 108;  // sun_path
inline constexpr size_t kMaxTextBytes = 1024;
inline constexpr size_t kMaxAnswerGroups = 256;
inline constexpr uint8_t kMaxTreeHops = 64;

using Endpoints = std::vector<std::string>;

enum class TreeRole : uint8_t { kRoot, kLeader, kLocal };

// First message of whoever connects.
struct HelloMessage {
  uint64_t job_id = 0;
  uint64_t generation = 0;
  int world_size = 1;
  int num_roots = 1;
  int rank = 0;
  uint64_t instance = 0;
  int64_t pid = 0;
  TreeRole role = TreeRole::kLocal;
  bool assigned = false;  // was redirected here: do not send it further
  bool reattach = false;  // has been in the tree before
  int unreachable = -1;   // the parent that it was given before, and did not reach
  Endpoints endpoints;    // where its children will reach it
  RankSet subtree;        // itself and all below it
  RankSet dead;
};
// The connection is one of the tree from now on.
struct WelcomeMessage {
  int rank = 0;
  bool complete = false;
  RankSet dead;
};
// Another parent is to be asked; the connection ends.
struct RedirectMessage {
  int rank = 0;
  Endpoints endpoints;
};
// The connection ends. Not final: ask again later.
struct RejectMessage {
  bool final = true;
  StatusCode code = StatusCode::kUnavailable;
  RankSet ranks;
  std::string text;
};
// Up: these are below the sender from now on.
struct JoinedMessage {
  RankSet ranks;
};
// Up: `moved` are no longer below the sender, and look for another parent; `left` said goodbye.
struct DetachedMessage {
  RankSet moved;
  RankSet left;
};
// Down, while not complete. With text: the sender's tree has not reached its root, and why.
struct ProgressMessage {
  RankSet missing;
  std::string text;
};
// Down: all are there. `depth` is the sender's. With the token that ranks of different hosts show each other: whoever
// has lost a parent inside its host may have to go to another host, and the store may be gone by then.
struct CompleteMessage {
  int depth = 0;
  std::string token;
};
// To all.
struct DiedMessage {
  RankSet ranks;
  std::string text;
};
// To all: the job cannot come up.
struct FailedMessage {
  StatusCode code = StatusCode::kUnavailable;
  RankSet ranks;
  std::string text;
};
// Routed to `target`, or to whoever knows that it is gone.
struct ResolveMessage {
  int asker = 0;
  int target = 0;
  uint8_t hops = 0;
};
// Routed to `asker`.
struct ResolvedMessage {
  int asker = 0;
  int target = 0;
  uint8_t hops = 0;
  StatusCode code = StatusCode::kOk;
  std::vector<std::byte> record;  // the text of the error, where there is one
};
// To all. Of the top: who else has left, as whoever takes its place may not know.
struct GoodbyeMessage {
  RankSet left;
};
// Down, once complete: the top, and who takes its place when it has died or left, best first; and roots that have left.
struct SuccessorsMessage {
  std::vector<RedirectMessage> successors;
  RankSet left_roots;
};
// To all, each answers once to where it came from.
struct QueryMessage {
  int asker = 0;
  uint32_t query = 0;
  uint32_t patience_ms = 0;
  std::vector<std::byte> payload;
};
struct AnswersMessage {
  struct Group {
    std::vector<std::byte> payload;
    RankSet ranks;
  };
  int asker = 0;
  uint32_t query = 0;
  std::vector<Group> groups;
};

// The kind is the index.
using TreeMessage =
    std::variant<HelloMessage, WelcomeMessage, RedirectMessage, RejectMessage, JoinedMessage, DetachedMessage,
                 ProgressMessage, CompleteMessage, DiedMessage, FailedMessage, ResolveMessage, ResolvedMessage,
                 GoodbyeMessage, SuccessorsMessage, QueryMessage, AnswersMessage>;

std::vector<std::byte> encode_tree_message(const TreeMessage& message);

// What the four bytes of a header announce. kDataLoss where the kind or the length is none.
Result<size_t> tree_body_bytes(std::span<const std::byte, kTreeHeaderBytes> header);
// A whole message, header included. kDataLoss with what is wrong; every rank in the result is below `world_size`, but a
// hello is read by its own world size: how it differs is for the receiver to say.
Result<TreeMessage> decode_tree_message(std::span<const std::byte> bytes, int world_size);

// "10.0.0.1:4711", "[fe80::1]:4711" or "@abstract-name". kInvalidArgument for everything else, host names included.
Status check_tree_endpoint(const std::string& endpoint);

}  // namespace qx::collectives
