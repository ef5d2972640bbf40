// Verbs whose work needs PyTorch run in Python: `python3 -m quincunx.cli VERB ...`.
#pragma once

#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::apps {

// The interpreter that serves the Python verbs: QX_PYTHON where it is set, else `python3` in the folder of this
// program, which is where `pip install` puts both.
Result<std::string> find_python();

// Replaces this process by `python -m quincunx.cli verb arguments...`. Returns only where that fails.
Status run_python_verb(const std::string& verb, const std::vector<std::string>& arguments);

}  // namespace qx::apps
