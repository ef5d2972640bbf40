// Which ranks of a group share a host: what algorithms in two levels are made from. Hosts are in the order of their
// lowest ranks, and so are the ranks of each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qx::collectives {

class HostLayout {
 public:
  // One host with all ranks.
  explicit HostLayout(int num_ranks);
  // hosts[r] names the host of rank r; 0: one of its own.
  explicit HostLayout(std::span<const uint32_t> hosts);

  int num_ranks() const { return static_cast<int>(host_of_.size()); }
  int num_hosts() const { return static_cast<int>(hosts_.size()); }
  const std::vector<int>& ranks_of(int host) const { return hosts_[static_cast<size_t>(host)]; }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  // The place of a rank among those of its host.
  int index_of(int rank) const { return index_of_[static_cast<size_t>(rank)]; }
  // So many ranks of each host carry data to the next host, each its own part: as many as the smallest host has.
  int num_carriers() const { return num_carriers_; }
  int carrier(int host, int column) const { return ranks_of(host)[static_cast<size_t>(column)]; }
  // The column of the carrier that speaks for a rank.
  int column_of(int rank) const { return index_of(rank) % num_carriers_; }

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<int> host_of_, index_of_;
  int num_carriers_ = 1;
};

}  // namespace qx::collectives
