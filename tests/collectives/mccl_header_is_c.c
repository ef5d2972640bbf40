/* The C interface compiles as C11, and its structs stay where callers that were compiled before expect them. Nothing is
 * run. */
#include "quincunx/collectives/quincunx_mccl.h"

_Static_assert(sizeof(qx_buffer) == 24, "qx_buffer");
_Static_assert(offsetof(qx_buffer, count) == 8 && offsetof(qx_buffer, dtype) == 16, "qx_buffer");
_Static_assert(sizeof(qx_reduction) == 16 && offsetof(qx_reduction, pre_multiplier) == 8, "qx_reduction");
_Static_assert(offsetof(qx_communicator_options, address) == 16, "qx_communicator_options");
_Static_assert(offsetof(qx_communicator_options, timeout_ms) == 40, "qx_communicator_options");
_Static_assert(offsetof(qx_communicator_options, secret_file) == 64, "qx_communicator_options");
_Static_assert(offsetof(qx_communicator_options, tls_authority_file) == 96, "qx_communicator_options");
_Static_assert(offsetof(qx_communicator_options, host_id) == 104, "qx_communicator_options");
_Static_assert(sizeof(qx_communicator_options) == 112, "qx_communicator_options");
_Static_assert(QX_INTERNAL == 11 && QX_COMPLEX128 == 19 && QX_PREMUL_SUM == 8 && QX_WAS_ABORTED == 3, "codes");

qx_status sum(qx_communicator* group, float* values, int64_t count);
qx_status sum(qx_communicator* group, float* values, int64_t count) {
  const qx_buffer buffer = {values, count, QX_FLOAT32};
  return qx_all_reduce(group, &buffer, NULL, 0, NULL);
}
