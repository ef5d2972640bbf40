// `qx doctor comm`: whether ranks on this machine can find each other, and how.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::apps {

struct DoctorCommArguments {
  bool json = false;
  std::vector<std::string> peers;  // numeric "address:port", each to be tried
  double timeout_s = 3;            // for each peer
};

// Prints the interfaces and one line a probe. An error where a probe has failed; warnings do not count.
Status print_doctor_comm(const DoctorCommArguments& arguments, std::ostream& out);

}  // namespace qx::apps
