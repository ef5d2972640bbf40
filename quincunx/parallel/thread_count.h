// How many threads a loop may use.
#pragma once

#include <string>

#include "quincunx/base/status.h"

namespace qx {

inline constexpr int kMaxThreads = 1024;

// Reads the text of QX_NUM_THREADS: a whole number from 1 to kMaxThreads.
Result<int> parse_thread_count(const std::string& text);

// QX_NUM_THREADS where it is valid, else num_available_cpus(). An invalid value is reported once.
int default_thread_count();

}  // namespace qx
