// `qx doctor`: what this machine offers to the library, and what of it is too small.
#pragma once

#include <ostream>

namespace qx::apps {

// Prints one line a fact and one `warning:` line a limit that is known to hurt. Returns the number of warnings.
int print_doctor(std::ostream& out);

}  // namespace qx::apps
