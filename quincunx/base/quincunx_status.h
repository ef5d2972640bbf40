/* What every C interface of Quincunx returns. A function that may fail returns QX_OK, or a code with the reason in
 * qx_last_error() of the same thread. Nothing is thrown. */
#ifndef QUINCUNX_BASE_QUINCUNX_STATUS_H_
#define QUINCUNX_BASE_QUINCUNX_STATUS_H_

#ifdef __cplusplus
extern "C" {
#endif

/* The codes of quincunx/base/status.h. */
typedef enum qx_status {
  QX_OK = 0,
  QX_INVALID_ARGUMENT,
  QX_TYPE_ERROR,
  QX_UNIMPLEMENTED,
  QX_DEADLINE_EXCEEDED,
  QX_FAILED_PRECONDITION,
  QX_NOT_FOUND,
  QX_UNAVAILABLE,
  QX_ABORTED,
  QX_RESOURCE_EXHAUSTED,
  QX_DATA_LOSS,
  QX_INTERNAL
} qx_status;

/* What went wrong in this thread's latest call that failed; "" if none has. Valid until its next call that fails. */
const char* qx_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
