/* The C interface compiles as C: nothing is run. */
#include "quincunx/lite/quincunx_lite.h"

qx_status load_and_free(const char* path);
qx_status load_and_free(const char* path) {
  qx_session* session = 0;
  const qx_status status = qx_session_load(path, 1, &session);
  qx_session_free(session);
  return status;
}
