// Any bytes from a peer: the parser refuses them or hands out frames within their stated sizes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/scripted_link.h"
#include "quincunx/base/check.h"
#include "quincunx/collectives/bootstrap/rank_record.h"
#include "quincunx/collectives/call.h"

namespace {

using namespace qx::collectives;

class CheckingHandler : public RecordingHandler {
 public:
  qx::Status on_frame(int peer, const FrameHeader& header, std::span<const std::byte> payload) override {
    QX_CHECK(static_cast<int64_t>(payload.size()) == header.payload_bytes);
    const Call call = call_from_frame(header, payload);
    QX_CHECK(!call.to_string().empty());
    const Call* calls[] = {&call, &call, &call};
    static_cast<void>(compare_calls(calls));
    return RecordingHandler::on_frame(peer, header, payload);
  }
};

}  // namespace

// The first byte says into what pieces the rest is cut.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto record = RankRecord::decode(std::string(reinterpret_cast<const char*>(data), size));
  if (record.ok()) QX_CHECK(RankRecord::decode(record->encode()).ok());
  if (size == 0) return 0;
  ScriptedLink* link = nullptr;
  CheckingHandler handler;
  PeerChannel channel = scripted_channel(handler, link);
  const size_t piece = size_t{data[0]} + 1;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    link->feed(bytes.subspan(begin, std::min(piece, bytes.size() - begin)));
    if (!channel.pump().ok()) break;
  }
  return 0;
}
