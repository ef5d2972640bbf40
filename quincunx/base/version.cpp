#include "quincunx/base/version.h"

namespace qx {
const char* version() { return QX_VERSION; }
}  // namespace qx
