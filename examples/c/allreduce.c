/* Sums an array over processes, from C. Start it once for each rank, on one machine or several:
 *
 *   ./allreduce RANK WORLD_SIZE ADDRESS
 *
 * ADDRESS is where rank 0 can be reached, mccl://host:port, or a directory that all machines see, file:///directory:
 *   for r in 0 1 2; do ./allreduce $r 3 mccl://127.0.0.1:29500 & done; wait
 */
#include <quincunx/collectives/quincunx_mccl.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 1000 };

static int fail(int rank) {
  fprintf(stderr, "rank %d: %s\n", rank, qx_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s RANK WORLD_SIZE ADDRESS\n", argv[0]);
    return 2;
  }
  const int rank = atoi(argv[1]);
  const qx_communicator_options options = {
      .struct_size = sizeof(options),
      .rank = rank,
      .world_size = atoi(argv[2]),
      .address = argv[3],
      .timeout_ms = 30000,
  };

  /* Returns at once; connecting goes on in the background while the program prepares its data. */
  qx_communicator* group = NULL;
  if (qx_communicator_create(&options, &group) != QX_OK) return fail(rank);
  static float values[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + 1);

  const qx_buffer buffer = {values, kCount, QX_FLOAT32};
  qx_work* work = NULL;
  if (qx_all_reduce(group, &buffer, NULL, 0, &work) != QX_OK) return fail(rank);
  /* The operation goes on meanwhile: other work has its place here. */
  if (qx_work_wait(work, 0) != QX_OK) return fail(rank);
  qx_work_free(work);

  printf("rank %d: the sum is %g\n", rank, (double)values[0]);
  qx_communicator_destroy(group);
  return 0;
}
