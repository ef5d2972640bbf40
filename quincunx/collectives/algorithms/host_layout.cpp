#include "quincunx/collectives/algorithms/host_layout.h"

#include <algorithm>
#include <map>

namespace qx::collectives {

HostLayout::HostLayout(int num_ranks) : HostLayout(std::vector<uint32_t>(static_cast<size_t>(num_ranks), 1)) {}

HostLayout::HostLayout(std::span<const uint32_t> hosts) {
  std::map<uint32_t, int> known;
  for (size_t r = 0; r < hosts.size(); ++r) {
    auto place = static_cast<int>(hosts_.size());
    if (hosts[r] != 0) place = known.emplace(hosts[r], place).first->second;
    if (place == num_hosts()) hosts_.emplace_back();
    std::vector<int>& ranks = hosts_[static_cast<size_t>(place)];
    host_of_.push_back(place);
    index_of_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(r));
  }
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  num_carriers_ = static_cast<int>(std::min_element(hosts_.begin(), hosts_.end(), smaller)->size());
}

}  // namespace qx::collectives
