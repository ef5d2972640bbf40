// What a rank tells others about itself, as one line of text: roots publish it in the store, the tree carries it to
// whoever needs a link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::collectives {

struct RankRecord {
  int rank = 0;
  int world_size = 1;
  // Changes with every start of the kernel: the same on every container of a host, and on no other host.
  std::string boot_id;
  // Ranks with the same boot id and the same network namespace reach each other by loopback.
  std::string network_namespace;
  int64_t pid = 0;
  std::vector<std::string> loopback_endpoints;
  std::vector<std::string> external_endpoints;  // best first; none where no interface but loopback is up
  bool takes_external = false;                  // they are listened on, whether other hosts are known of or not
  // 32 hexadecimal digits. Whoever connects shows it: it can only be had from the store or through the tree.
  std::string token;

  std::string encode() const;
  // kDataLoss with the field that is wrong.
  static Result<RankRecord> decode(const std::string& text);
  bool shares_loopback(const RankRecord& other) const {
    return boot_id == other.boot_id && network_namespace == other.network_namespace;
  }
  // Where `other` can try to reach this rank, best first.
  std::vector<std::string> endpoints_for(const RankRecord& other) const;
};

// Sets boot id, namespace and pid to those of this process.
void describe_this_process(RankRecord& record);

}  // namespace qx::collectives
