// Large collectives of groups that span hosts, so that each byte crosses between hosts as seldom as can be and no rank
// needs more links to other hosts than two.
//
// The carriers of a host each own a part of the data, a column. Within the host every rank gives each carrier its part,
// which reduces them; a column goes from host to host along a ring, reduced on its way; and carriers hand what is done
// to the ranks of their host while the rest is still on its way.
#pragma once

#include <memory>

#include "quincunx/collectives/algorithms/direct_exchange.h"
#include "quincunx/collectives/algorithms/host_layout.h"
#include "quincunx/collectives/algorithms/staged_exchange.h"

namespace qx::collectives {

// The same collective as `direct`, which has not begun. For operations that has_two_levels.
std::unique_ptr<Exchange> in_two_levels(const DirectExchange& direct, const HostLayout& layout, int rank);
bool has_two_levels(Operation operation);

}  // namespace qx::collectives
