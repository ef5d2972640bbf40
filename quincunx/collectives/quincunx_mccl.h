/* mccl for C and for languages that call C: quincunx/collectives/communicator.h, which says more about each operation.
 * Functions are thread-safe, but for those that free an object. Null pointers, sizes and codes are checked.
 *
 *   qx_communicator_options options = {.struct_size = sizeof(options), .rank = 0, .world_size = 2};
 *   options.address = "mccl://10.0.0.1:29500";
 *   qx_communicator* group;
 *   if (qx_communicator_create(&options, &group) != QX_OK) puts(qx_last_error());
 *   qx_buffer buffer = {values, 1000, QX_FLOAT32};
 *   if (qx_all_reduce(group, &buffer, NULL, 0, NULL) != QX_OK) puts(qx_last_error());
 *   qx_communicator_destroy(group);
 */
#ifndef QUINCUNX_COLLECTIVES_QUINCUNX_MCCL_H_
#define QUINCUNX_COLLECTIVES_QUINCUNX_MCCL_H_

#include <stddef.h>
#include <stdint.h>

#include "quincunx/base/quincunx_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qx_communicator qx_communicator;
typedef struct qx_work qx_work;
typedef struct qx_memory qx_memory;

/* Those of quincunx/base/dtype.h. */
typedef enum qx_dtype {
  QX_BOOL = 0,
  QX_INT8,
  QX_UINT8,
  QX_INT16,
  QX_UINT16,
  QX_INT32,
  QX_UINT32,
  QX_INT64,
  QX_UINT64,
  QX_FLOAT8_E4M3FN,
  QX_FLOAT8_E5M2,
  QX_FLOAT8_E4M3FNUZ,
  QX_FLOAT8_E5M2FNUZ,
  QX_FLOAT8_E8M0FNU,
  QX_FLOAT16,
  QX_BFLOAT16,
  QX_FLOAT32,
  QX_FLOAT64,
  QX_COMPLEX64,
  QX_COMPLEX128
} qx_dtype;

typedef enum qx_reduce_op {
  QX_SUM = 0,
  QX_AVERAGE,
  QX_PRODUCT,
  QX_MIN,
  QX_MAX,
  QX_BIT_AND,
  QX_BIT_OR,
  QX_BIT_XOR,
  QX_PREMUL_SUM
} qx_reduce_op;

typedef enum qx_phase { QX_CONNECTING = 0, QX_READY, QX_FAILED, QX_WAS_ABORTED } qx_phase;
typedef enum qx_flight_format { QX_FLIGHT_JSON = 0, QX_FLIGHT_CHROME_TRACE } qx_flight_format;

/* Contiguous memory of `count` elements. Null data is allowed where count is 0. */
typedef struct qx_buffer {
  void* data;
  int64_t count;
  int32_t dtype; /* a qx_dtype */
} qx_buffer;

typedef struct qx_reduction {
  int32_t op;            /* a qx_reduce_op */
  double pre_multiplier; /* for QX_PREMUL_SUM alone */
} qx_reduction;

/* Zero in every field but the first three is a default. Later versions add fields at the end: struct_size tells which
 * ones the caller knows. */
typedef struct qx_communicator_options {
  size_t struct_size; /* sizeof(qx_communicator_options) */
  int32_t rank;
  int32_t world_size;
  /* Where the ranks meet: "mccl://host:port", where rank 0 serves, or "file:///directory", which all ranks see. Not
   * needed where world_size is 1. */
  const char* address;
  const char* group_name;        /* "default" */
  const char* generation;        /* differs between restarts of one job; none */
  int64_t timeout_ms;            /* of connecting and of every operation without one of its own; 30 minutes */
  const char* interface_address; /* numeric address to listen on */
  int32_t forbid_shared_memory;
  /* What the ranks of the job know. All null: QX_MCCL_SECRET_FILE, QX_MCCL_SECRET and QX_MCCL_TLS_* tell. One secret at
   * most; the three TLS files all or none. */
  const char* secret_file;
  const char* secret;
  const char* tls_certificate_file;
  const char* tls_key_file;
  const char* tls_authority_file;
  /* Only ranks with the same text count as of one host and share memory. Null: QX_MCCL_HOST_ID tells. */
  const char* host_id;
} qx_communicator_options;

/* Returns at once, and connects in the background. */
qx_status qx_communicator_create(const qx_communicator_options* options, qx_communicator** communicator);
/* Says goodbye to the others, and ends what is open. A null pointer is allowed. */
void qx_communicator_destroy(qx_communicator* communicator);

/* -1 for a null pointer. */
int32_t qx_communicator_rank(const qx_communicator* communicator);
int32_t qx_communicator_world_size(const qx_communicator* communicator);
qx_status qx_communicator_set_timeout(qx_communicator* communicator, int64_t timeout_ms);
/* 1 once all ranks are connected, else 0. Never waits. */
int32_t qx_communicator_ready(const qx_communicator* communicator);
/* Waits at most timeout_ms, 0: the communicator's own time. The error names the ranks that are missing. */
qx_status qx_communicator_wait_ready(qx_communicator* communicator, int64_t timeout_ms);
/* is_seen[r] becomes 1 where rank r has been seen, else 0; num_ranks is world_size, or 0 with is_seen null. Where the
 * phase is QX_FAILED or QX_WAS_ABORTED, qx_communicator_wait_ready tells why, at once. */
qx_status qx_communicator_progress(const qx_communicator* communicator, qx_phase* phase, uint8_t* is_seen,
                                   int64_t num_ranks);
/* A group of some ranks, in that order, over the same connections. Members only call it. */
qx_status qx_communicator_split(qx_communicator* communicator, const int32_t* members, int64_t num_members,
                                const char* name, qx_communicator** group);
/* Wakes every waiter with QX_ABORTED; later operations fail at once. */
qx_status qx_communicator_abort(qx_communicator* communicator, const char* reason);

/* Operations. timeout_ms of 0 is the communicator's own. With `work` null the call returns when the operation has
 * ended, with its status. Else it returns once the operation is queued, and *work is to be freed: bad arguments are
 * told at once, and leave *work null. Buffers must stay until the operation has ended; the descriptions of them need
 * not. A null reduction is the sum. All ranks of a group call the same operations in the same order. */
qx_status qx_barrier(qx_communicator* communicator, int64_t timeout_ms, qx_work** work);
qx_status qx_broadcast(qx_communicator* communicator, const qx_buffer* buffer, int32_t root, int64_t timeout_ms,
                       qx_work** work);
qx_status qx_all_reduce(qx_communicator* communicator, const qx_buffer* buffer, const qx_reduction* reduction,
                        int64_t timeout_ms, qx_work** work);
/* Only root needs an output; it may be the input. */
qx_status qx_reduce(qx_communicator* communicator, const qx_buffer* input, const qx_buffer* output, int32_t root,
                    const qx_reduction* reduction, int64_t timeout_ms, qx_work** work);
/* outputs[r] receives rank r's input; sizes may differ between ranks. num_outputs is world_size. */
qx_status qx_all_gather(qx_communicator* communicator, const qx_buffer* input, const qx_buffer* outputs,
                        int64_t num_outputs, int64_t timeout_ms, qx_work** work);
/* num_outputs is 0 but on root. */
qx_status qx_gather(qx_communicator* communicator, const qx_buffer* input, const qx_buffer* outputs,
                    int64_t num_outputs, int32_t root, int64_t timeout_ms, qx_work** work);
/* num_inputs is 0 but on root. */
qx_status qx_scatter(qx_communicator* communicator, const qx_buffer* inputs, int64_t num_inputs,
                     const qx_buffer* output, int32_t root, int64_t timeout_ms, qx_work** work);
/* inputs[r] is reduced into rank r's output. */
qx_status qx_reduce_scatter(qx_communicator* communicator, const qx_buffer* inputs, int64_t num_inputs,
                            const qx_buffer* output, const qx_reduction* reduction, int64_t timeout_ms, qx_work** work);
/* inputs[r] goes to rank r; outputs[r] comes from rank r. Both have num_buffers, which is world_size. */
qx_status qx_all_to_all(qx_communicator* communicator, const qx_buffer* inputs, const qx_buffer* outputs,
                        int64_t num_buffers, int64_t timeout_ms, qx_work** work);
qx_status qx_send(qx_communicator* communicator, const qx_buffer* buffer, int32_t destination, int32_t tag,
                  int64_t timeout_ms, qx_work** work);
/* source -1 receives from any rank. */
qx_status qx_recv(qx_communicator* communicator, const qx_buffer* buffer, int32_t source, int32_t tag,
                  int64_t timeout_ms, qx_work** work);

/* Waits for the end, at most timeout_ms; 0: the operation's own time. Then its status. Where the time passes, the
 * operation has failed, and its group takes no others: to look whether it has ended, use qx_work_test. */
qx_status qx_work_wait(qx_work* work, int64_t timeout_ms);
/* *is_done becomes 1 where the operation has ended, and its status is returned; else 0 and QX_OK. Never waits. */
qx_status qx_work_test(qx_work* work, int32_t* is_done);
/* Of a finished receive; else -1. */
int32_t qx_work_source_rank(const qx_work* work);
/* `callback` is called once, from the thread that ends the operation, or at once where it has ended, with its status;
 * qx_last_error() of that thread tells more. It must not wait for operations. At most once for each work. */
qx_status qx_work_on_completion(qx_work* work, void (*callback)(qx_status status, void* context), void* context);
/* The operation goes on where it has not ended. A null pointer is allowed. */
void qx_work_free(qx_work* work);

/* Memory that the ranks of this host read where it lies; see Communicator::allocate. It may outlive the communicator.
 */
qx_status qx_communicator_allocate(qx_communicator* communicator, int64_t size_bytes, qx_memory** memory);
void* qx_memory_data(const qx_memory* memory);
/* A null pointer is allowed. */
void qx_memory_free(qx_memory* memory);

/* Texts to be freed with qx_text_free: bytes and calls by operation, and the last operations of this process. */
qx_status qx_communicator_statistics(const qx_communicator* communicator, char** json);
qx_status qx_flight_records(int32_t format, char** json);
qx_status qx_write_flight_records(const char* path, int32_t format);
/* A null pointer is allowed. */
void qx_text_free(char* text);

#ifdef __cplusplus
}
#endif

#endif
