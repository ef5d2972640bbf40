// The store that an address names.
#pragma once

#include <memory>
#include <string>

#include "quincunx/collectives/communicator.h"

namespace qx::collectives {

// "mccl://host:port": rank 0 of the options serves there, with their credentials or those of the environment; the store
// is for one communicator and those that are split from it. "file:///directory": one that all ranks see.
Result<std::shared_ptr<Store>> open_store(const std::string& address, const Options& options);

}  // namespace qx::collectives
