#include "quincunx/apps/doctor_comm.h"

#include <iomanip>
#include <nlohmann/json.hpp>

#include "quincunx/apps/comm_probes.h"

namespace qx::apps {
namespace {

constexpr int kNameColumn = 26;

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFine: return "fine";
    case Verdict::kWarning: return "warning";
    case Verdict::kFailed: return "failed";
  }
  return "";
}

void print_text(const std::vector<InterfaceAddress>& addresses, const std::vector<Probe>& probes, std::ostream& out) {
  out << std::left;
  for (const InterfaceAddress& entry : addresses) {
    out << std::setw(kNameColumn) << ("interface " + entry.interface) << entry.address
        << (entry.is_loopback ? ", loopback" : "") << (entry.is_up ? "" : ", down")
        << (entry.is_offered ? ", offered to other hosts" : "") << "\n";
  }
  for (const Probe& probe : probes) {
    out << std::setw(kNameColumn) << probe.name << probe.detail << "\n";
    if (probe.verdict != Verdict::kFine) {
      out << verdict_name(probe.verdict) << ": " << probe.name << ": " << probe.advice << "\n";
    }
  }
}

void print_json(const std::vector<InterfaceAddress>& addresses, const std::vector<Probe>& probes, bool ok,
                std::ostream& out) {
  nlohmann::ordered_json report = {
      {"ok", ok}, {"interfaces", nlohmann::ordered_json::array()}, {"probes", nlohmann::ordered_json::array()}};
  for (const InterfaceAddress& entry : addresses) {
    report["interfaces"].push_back({{"interface", entry.interface},
                                    {"address", entry.address},
                                    {"up", entry.is_up},
                                    {"loopback", entry.is_loopback},
                                    {"offered", entry.is_offered}});
  }
  for (const Probe& probe : probes) {
    report["probes"].push_back({{"name", probe.name},
                                {"verdict", verdict_name(probe.verdict)},
                                {"detail", probe.detail},
                                {"advice", probe.advice}});
  }
  out << report.dump(2) << "\n";
}

}  // namespace

Status print_doctor_comm(const DoctorCommArguments& arguments, std::ostream& out) {
  if (!(arguments.timeout_s > 0 && arguments.timeout_s <= 3600)) {
    return invalid_argument("--timeout: expected more than 0 and at most 3600 seconds, got " +
                            std::to_string(arguments.timeout_s));
  }
  const std::chrono::milliseconds timeout(static_cast<int64_t>(arguments.timeout_s * 1000));
  std::vector<Probe> probes = {probe_host(),
                               probe_loopback(),
                               probe_offered_addresses(),
                               probe_shared_memory(),
                               probe_abstract_sockets(),
                               probe_file_limit(),
                               probe_locked_memory(),
                               probe_ports(),
                               probe_credentials()};
  for (const std::string& peer : arguments.peers) probes.push_back(probe_peer(peer, timeout));
  std::string names;
  for (const Probe& probe : probes) {
    if (probe.verdict == Verdict::kFailed) names += (names.empty() ? "" : ", ") + probe.name;
  }
  const std::vector<InterfaceAddress> addresses = interface_addresses();
  if (arguments.json)
    print_json(addresses, probes, names.empty(), out);
  else
    print_text(addresses, probes, out);
  return names.empty() ? ok_status() : unavailable("failed: " + names);
}

}  // namespace qx::apps
