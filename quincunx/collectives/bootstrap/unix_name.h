// Abstract unix sockets, "@name": they go with the process that has bound them, and leave nothing in the file system.
// Only processes of one network namespace see each other's.
#pragma once

#include <string>

#include "quincunx/base/status.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

// Binds and listens. kFailedPrecondition where another socket has the name.
Result<Socket> listen_on_name(const std::string& name);
// Starts to connect; kUnavailable where nobody has the name.
Result<Socket> connect_to_name(const std::string& name);
// Ok where the process at the other end of a unix socket is one of this user.
Status check_same_user(const Socket& socket);

}  // namespace qx::collectives
