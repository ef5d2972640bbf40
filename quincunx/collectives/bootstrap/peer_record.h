// What a rank publishes about itself, as one line of text.
#pragma once

#include <cstdint>
#include <string>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/random_bits.h"
#include "quincunx/collectives/transport/shared_memory.h"

namespace qx::collectives {

struct PeerRecord {
  int rank = 0;
  int world_size = 1;
  // Changes with every start of the kernel: the same on every container of a host, and on no other host.
  std::string boot_id;
  // Ranks with the same boot id and the same network namespace reach each other by loopback.
  std::string network_namespace;
  int64_t pid = 0;
  std::string endpoint;      // numeric; loopback unless an address was chosen
  bool is_external = false;  // the endpoint can be reached from other hosts
  SegmentAddress segment;    // fd < 0: none
  // 32 hexadecimal digits. Whoever connects shows it: it can only be had from the store.
  std::string token;

  std::string encode() const;
  // kDataLoss with the field that is wrong.
  static Result<PeerRecord> decode(const std::string& text);
  bool same_host(const PeerRecord& other) const { return boot_id == other.boot_id; }
  bool shares_loopback(const PeerRecord& other) const {
    return same_host(other) && network_namespace == other.network_namespace;
  }
};

// Boot id, namespace and pid of this process.
PeerRecord describe_this_host();

}  // namespace qx::collectives
