// The version of the library that runs, which can differ from the headers that a program was built with.
#pragma once

namespace qx {
// "0.1.0"
const char* version();
}  // namespace qx
