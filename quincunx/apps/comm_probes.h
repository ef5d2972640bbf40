// What two ranks of one host need from it, tried out one by one. Each probe takes well under a second.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace qx::apps {

enum class Verdict { kFine, kWarning, kFailed };

struct Probe {
  std::string name;
  Verdict verdict = Verdict::kFine;
  std::string detail;  // what was found
  std::string advice;  // what to do about it; empty where it is fine
};

// An address of a network interface.
struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool is_up = false;
  bool is_loopback = false;
  bool is_offered = false;  // to ranks of other hosts
};

// In the system's order.
std::vector<InterfaceAddress> interface_addresses();

// Boot id, namespaces and user, by which ranks find out whether they share a host.
Probe probe_host();
// The addresses that ranks of other hosts are told to try: that sockets can listen there and be connected to.
Probe probe_offered_addresses();
Probe probe_loopback();
// A socket in the abstract namespace, and that the kernel tells who is at its other end.
Probe probe_abstract_sockets();
// A child's anonymous memory, opened through /proc and mapped here.
Probe probe_shared_memory();
Probe probe_file_limit();
Probe probe_locked_memory();
Probe probe_ports();
// The secret and the certificates that QX_MCCL_* name.
Probe probe_credentials();
// That something accepts connections at a numeric "address:port".
Probe probe_peer(const std::string& endpoint, std::chrono::milliseconds timeout);

}  // namespace qx::apps
