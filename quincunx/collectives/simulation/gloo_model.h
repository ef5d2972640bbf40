// What the start of a job costs with a full mesh and one store, as gloo and torch's TCPStore do it: the peer that
// `qx plan comm` compares the tree with. Every rank publishes one value, reads those of all others through one server,
// and connects to every other rank.
#pragma once

#include <cstdint>

namespace qx::collectives {

// Four of the numbers are costs of one thread that serves a store (measured on loopback: 5 to 10 us a request, 1 to 2
// GB/s), the others belong to the protocol. With them the model is within a factor of two of the published times of
// real clusters (pytorch/gloo#408: 2,048 ranks 82 s, 4,096 393 s, 8,192 55 min; batched 18 s, 25 s, 85 s).
struct GlooModel {
  double request_s = 5e-6;            // of the server, for a request
  double key_s = 0.9e-6;              // and for each key in it
  double server_bytes_per_s = 1.5e9;  // copied and sent by its one thread
  double connect_s = 1e-3;            // of a rank, for each of its peers, one after another
  double start_s = 5;                 // until all processes of a cluster have started
  int64_t address_bytes = 160;        // of a rank's value
  int64_t pair_bytes = 8;             // of a rank's value, for each other rank: a sequence number
  int64_t keys_per_batch = 128;
};

struct GlooEstimate {
  double total_s = 0;
  double store_s = 0;
  double mesh_s = 0;
  int64_t bytes_rank = 0;   // received
  double server_bytes = 0;  // sent by the store: grows with the cube of the ranks where values hold pairs
  int64_t connections_rank = 0;
};

// Batched: 128 keys a request, and the rank is the sequence number, so that values hold an address alone.
// num_ranks must be positive.
GlooEstimate estimate_gloo(int64_t num_ranks, bool batched, const GlooModel& model = {});

}  // namespace qx::collectives
