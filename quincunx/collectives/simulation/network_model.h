// What a simulated network and its hosts cost.
#pragma once

#include <cstdint>

namespace qx::collectives {

// Defaults: a cluster on 25 Gbit/s Ethernet. Processor times are those of a 2-core AVX-512 server, with the proof of
// TCP connections, on both of whose cores 4,096 ranks of run_virtual_ranks and 64 processes of start_benchmark are
// simulated within 20 % of what they take (benchmarks/mccl/simulation_rows.py).
struct NetworkModel {
  double round_trip_s = 100e-6;       // between hosts
  double local_round_trip_s = 20e-6;  // inside a host
  double connect_s = 18e-6;           // processor time of whoever connects over TCP
  double accept_s = 72e-6;            // of whoever accepts
  double local_connect_s = 4.5e-6;    // the same over a unix socket
  double local_accept_s = 13.5e-6;
  // Of a process, which virtual ranks of one process do not pay: to make its threads and memory before it connects and
  // to wait for its turn in its leader's queue, to be woken, and to load what proofs need before its first connection
  // over TCP.
  double start_s = 1.75e-3;
  double wakeup_s = 8e-6;
  double first_proof_s = 1e-3;
  double message_s = 5.4e-6;      // of one side, for each message
  double byte_s = 0.5e-9;         // of one side, for each byte
  double link_bytes_per_s = 3e9;  // of a host, each way
  double start_skew_s = 0.05;     // ranks start at random within that time
  double loss = 0;                // share of segments that are lost
  double retransmit_s = 0.2;      // a lost segment comes that much later, a lost SYN five times
  double look_up_s = 1e-3;        // to find where a root listens
  // Cores that the ranks of a host share; 0: one each.
  int cores_per_host = 0;
  // All hosts are this machine, and share the cores of one: thousands of virtual ranks on loopback.
  bool is_one_machine = false;
};

}  // namespace qx::collectives
