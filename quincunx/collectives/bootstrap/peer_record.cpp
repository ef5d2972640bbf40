#include "quincunx/collectives/bootstrap/peer_record.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <vector>

namespace qx::collectives {
namespace {

constexpr std::string_view kFormat = "qx1";
constexpr size_t kNumFields = 12;
constexpr size_t kTokenDigits = 32;

std::vector<std::string> split_fields(const std::string& text) {
  std::vector<std::string> fields(1);
  for (const char c : text) {
    if (c == '|')
      fields.emplace_back();
    else
      fields.back().push_back(c);
  }
  return fields;
}

template <typename T>
bool parse_number(const std::string& text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

Status bad(const char* field, const std::string& text) {
  return data_loss("peer record: " + std::string(field) + " is wrong in \"" + text.substr(0, 256) + "\"");
}

}  // namespace

std::string PeerRecord::encode() const {
  std::string text(kFormat);
  for (const std::string& field :
       {std::to_string(rank), std::to_string(world_size), boot_id, network_namespace, std::to_string(pid), endpoint,
        std::to_string(int{is_external}), std::to_string(segment.fd), std::to_string(segment.size_bytes),
        std::to_string(segment.nonce), token}) {
    text += "|" + field;
  }
  return text;
}

Result<PeerRecord> PeerRecord::decode(const std::string& text) {
  const std::vector<std::string> fields = split_fields(text);
  if (fields.size() != kNumFields || fields[0] != kFormat) return bad("format", text);
  PeerRecord record;
  int external = 0;
  if (!parse_number(fields[1], record.rank) || record.rank < 0) return bad("rank", text);
  if (!parse_number(fields[2], record.world_size) || record.world_size <= record.rank) return bad("world size", text);
  record.boot_id = fields[3];
  record.network_namespace = fields[4];
  if (!parse_number(fields[5], record.pid) || record.pid <= 0) return bad("pid", text);
  record.endpoint = fields[6];
  if (!parse_number(fields[7], external) || external < 0 || external > 1) return bad("external flag", text);
  record.is_external = external == 1;
  if (!parse_number(fields[8], record.segment.fd)) return bad("segment descriptor", text);
  if (!parse_number(fields[9], record.segment.size_bytes)) return bad("segment size", text);
  if (!parse_number(fields[10], record.segment.nonce)) return bad("segment nonce", text);
  record.segment.pid = record.pid;
  record.token = fields[11];
  if (record.token.size() != kTokenDigits) return bad("token", text);
  return record;
}

PeerRecord describe_this_host() {
  PeerRecord record;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, record.boot_id);
  char target[128] = "";
  if (readlink("/proc/self/ns/net", target, sizeof(target) - 1) > 0) record.network_namespace = target;
  record.pid = getpid();
  return record;
}

}  // namespace qx::collectives
