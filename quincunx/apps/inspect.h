// `qx inspect MODEL.qxm`: what a converted model holds, without running it.
#pragma once

#include <ostream>
#include <string>

#include "quincunx/base/status.h"

namespace qx::apps {

struct InspectArguments {
  std::string model;
  bool json = false;
};

// The file's sections, its description, and each method with all of its nodes; as JSON with the operators counted.
// Checks everything, weights too.
Status inspect_model(const InspectArguments& arguments, std::ostream& out);

}  // namespace qx::apps
