/* The runtime for C and for languages that call C. Every function that may fail returns 0, or a code of qx_status with
 * the reason in qx_last_error() of the same thread. A session serves one call at a time.
 *
 *   qx_session* session;
 *   if (qx_session_load("model.qxm", 0, &session) != QX_OK) puts(qx_last_error());
 *   qx_session_run(session, "forward", inputs, 1, outputs, 1);
 *   qx_session_free(session);
 */
#ifndef QUINCUNX_LITE_QUINCUNX_LITE_H_
#define QUINCUNX_LITE_QUINCUNX_LITE_H_

#include <dlpack/dlpack.h>
#include <stdint.h>

#include "quincunx/base/quincunx_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qx_session qx_session;

/* Loads a .qxm file. num_threads of 0 leaves the process's pool as it is. */
qx_status qx_session_load(const char* path, int num_threads, qx_session** session);
/* A null pointer is allowed. */
void qx_session_free(qx_session* session);

/* Counts and names, in the order in which qx_session_run() takes them. Names live as long as the session. */
int64_t qx_session_num_methods(const qx_session* session);
qx_status qx_session_method_name(const qx_session* session, int64_t method, const char** name);
qx_status qx_session_num_inputs(const qx_session* session, const char* method, int64_t* count);
qx_status qx_session_num_outputs(const qx_session* session, const char* method, int64_t* count);
qx_status qx_session_input_name(const qx_session* session, const char* method, int64_t input, const char** name);
qx_status qx_session_output_name(const qx_session* session, const char* method, int64_t output, const char** name);

/* The shape that an output has for the given inputs: `shape` holds 8 numbers, of which *num_dims are set. Only the
 * shapes of the inputs are read. */
qx_status qx_session_output_shape(qx_session* session, const char* method, const DLTensor* inputs, int64_t num_inputs,
                                  int64_t output, int64_t* shape, int* num_dims);

/* Reads the inputs where they are and writes the outputs, contiguous tensors of the right dtype and shape. */
qx_status qx_session_run(qx_session* session, const char* method, const DLTensor* inputs, int64_t num_inputs,
                         const DLTensor* outputs, int64_t num_outputs);

/* All states as they were when the model was loaded. */
qx_status qx_session_reset_states(qx_session* session);

#ifdef __cplusplus
}
#endif

#endif
