#include "quincunx/collectives/simulation/gloo_model.h"

namespace qx::collectives {

GlooEstimate estimate_gloo(int64_t num_ranks, bool batched, const GlooModel& model) {
  GlooEstimate estimate;
  const int64_t value_bytes = model.address_bytes + (batched ? 0 : model.pair_bytes * num_ranks);
  const auto keys = static_cast<double>(num_ranks) * static_cast<double>(num_ranks);
  const double requests = batched ? keys / static_cast<double>(model.keys_per_batch) : keys;
  estimate.bytes_rank = value_bytes * num_ranks;
  estimate.server_bytes = static_cast<double>(value_bytes) * keys;
  estimate.connections_rank = num_ranks;  // the others, and the store
  estimate.store_s = requests * model.request_s + keys * model.key_s + estimate.server_bytes / model.server_bytes_per_s;
  estimate.mesh_s = static_cast<double>(num_ranks - 1) * model.connect_s;
  estimate.total_s = model.start_s + estimate.store_s + estimate.mesh_s;
  return estimate;
}

}  // namespace qx::collectives
