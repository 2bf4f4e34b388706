/* Times MPI_Allreduce as `dunlin-perf all-reduce` times Dunlin's, for bench/peers/all_reduce:
 * float32 sums in place, blocking calls one after the other in memory that is reused, with a
 * barrier before each chunk. Prints "us VALUE": the median over the chunks of the slowest rank's
 * mean.
 *
 *   mpirun -n N all_reduce SIZE ITERATIONS WARMUP
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

static int rank, size, count;
static float* data;

static void all_reduce(void) {
  MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Small integers, whose sums are exact. */
static void check(void) {
  for (int i = 0; i < count; ++i) data[i] = (float)(i % 7 + rank);
  all_reduce();
  for (int i = 0; i < count; ++i) {
    if (data[i] == (float)(size * (i % 7) + size * (size - 1) / 2)) continue;
    fprintf(stderr, "wrong data at element %d\n", i);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4) {
    fprintf(stderr, "usage: mpirun -n N all_reduce SIZE ITERATIONS WARMUP\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  count = (int)(atol(argv[1]) / (long)sizeof(float));
  if (posix_memalign((void**)&data, 4096, (size_t)count * sizeof(float)) != 0) return 1;
  check();
  memset(data, 0, (size_t)count * sizeof(float)); /* zeros stay zeros */
  time_call(all_reduce, atol(argv[2]), atol(argv[3]), rank);
  MPI_Finalize();
  return 0;
}
