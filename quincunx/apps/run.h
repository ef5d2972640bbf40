// `qx run MODEL.qxm`: runs one method of a converted model on .npy files, or on random numbers.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::apps {

struct RunArguments {
  std::string model;
  std::string method;               // empty: the only one
  std::vector<std::string> inputs;  // "name=file.npy"
  std::vector<std::string> sizes;   // "symbol=number", for random inputs
  std::string output_dir;           // empty: a summary of each output is printed only
  int num_threads = 0;
  int num_runs = 1;
  bool profile = false;
  std::string trace;  // a Chrome trace is written there
};

// Prints what it did. An input without a file gets random numbers; all or none need a file for a symbol's size to be
// known, unless `sizes` gives it.
Status run_model(const RunArguments& arguments, std::ostream& out);

}  // namespace qx::apps
