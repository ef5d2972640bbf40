#include "quincunx/collectives/bootstrap/rank_record.h"

#include <unistd.h>

#include <charconv>
#include <fstream>

namespace qx::collectives {
namespace {

constexpr std::string_view kFormat = "qx2";
constexpr size_t kNumFields = 10;
constexpr size_t kTokenDigits = 32;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> fields(1);
  for (const char c : text) {
    if (c == separator)
      fields.emplace_back();
    else
      fields.back().push_back(c);
  }
  return fields;
}

std::vector<std::string> split_list(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : split(text, ',');
}

std::string join_list(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

template <typename T>
bool parse_number(const std::string& text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

Status bad(const char* field, const std::string& text) {
  return data_loss("record of a rank: " + std::string(field) + " is wrong in \"" + text.substr(0, 256) + "\"");
}

}  // namespace

std::string RankRecord::encode() const {
  std::string text(kFormat);
  for (const std::string& field :
       {std::to_string(rank), std::to_string(world_size), boot_id, network_namespace, std::to_string(pid),
        join_list(loopback_endpoints), join_list(external_endpoints), std::to_string(int{takes_external}), token}) {
    text += "|" + field;
  }
  return text;
}

Result<RankRecord> RankRecord::decode(const std::string& text) {
  const std::vector<std::string> fields = split(text, '|');
  if (fields.size() != kNumFields || fields[0] != kFormat) return bad("format", text);
  RankRecord record;
  int takes_external = 0;
  if (!parse_number(fields[1], record.rank) || record.rank < 0) return bad("rank", text);
  if (!parse_number(fields[2], record.world_size) || record.world_size <= record.rank) return bad("world size", text);
  record.boot_id = fields[3];
  record.network_namespace = fields[4];
  if (!parse_number(fields[5], record.pid) || record.pid <= 0) return bad("pid", text);
  record.loopback_endpoints = split_list(fields[6]);
  record.external_endpoints = split_list(fields[7]);
  if (!parse_number(fields[8], takes_external) || takes_external < 0 || takes_external > 1) {
    return bad("external flag", text);
  }
  record.takes_external = takes_external == 1;
  record.token = fields[9];
  if (record.token.size() != kTokenDigits) return bad("token", text);
  return record;
}

std::vector<std::string> RankRecord::endpoints_for(const RankRecord& other) const {
  std::vector<std::string> endpoints;
  if (shares_loopback(other)) endpoints = loopback_endpoints;
  endpoints.insert(endpoints.end(), external_endpoints.begin(), external_endpoints.end());
  return endpoints;
}

void describe_this_process(RankRecord& record) {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, record.boot_id);
  char target[128] = "";
  if (readlink("/proc/self/ns/net", target, sizeof(target) - 1) > 0) record.network_namespace = target;
  record.pid = getpid();
}

}  // namespace qx::collectives
