/* Times deposits of float32 vectors in another rank's window, for bench/peers/window:
 * MPI_Accumulate (MPI_SUM) or MPI_Put of rank 0 to rank 1, followed by MPI_Win_flush. Rank 1 waits
 * in a barrier meanwhile. Prints "us VALUE": the median over the chunks of rank 0's mean.
 *
 *   mpirun -n 2 window accumulate|put SIZE ITERATIONS WARMUP
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

static int rank, count;
static float *source, *target;
static MPI_Win window;

static void accumulate(void) {
  if (rank != 0) return;
  MPI_Accumulate(source, count, MPI_FLOAT, 1, 0, count, MPI_FLOAT, MPI_SUM, window);
  MPI_Win_flush(1, window);
}

static void put(void) {
  if (rank != 0) return;
  MPI_Put(source, count, MPI_FLOAT, 1, 0, count, MPI_FLOAT, window);
  MPI_Win_flush(1, window);
}

/* Small integers, so that sums of two are exact. */
static float value(int i) {
  return (float)(i % 61 + 1);
}

static void check(void (*call)(void), int is_accumulate) {
  for (int repetition = 0; repetition < 2; ++repetition) call();
  MPI_Win_flush_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_sync(window);
  for (int i = 0; rank == 1 && i < count; ++i) {
    /* The target held 1 before. */
    const float expected = is_accumulate ? 1 + 2 * value(i) : value(i);
    if (target[i] == expected) continue;
    fprintf(stderr, "error: wrong data at element %d\n", i);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int is_accumulate = argc == 5 && strcmp(argv[1], "accumulate") == 0;
  if (size != 2 || argc != 5 || (!is_accumulate && strcmp(argv[1], "put") != 0)) {
    fprintf(stderr, "usage: mpirun -n 2 window accumulate|put SIZE ITERATIONS WARMUP\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  count = (int)(atol(argv[2]) / (long)sizeof(float));
  const size_t bytes = (size_t)count * sizeof(float);
  if (posix_memalign((void**)&source, 4096, bytes) != 0) return 1;
  MPI_Win_allocate((MPI_Aint)bytes, sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, &target, &window);
  /* Memory that was only allocated would be read from one page of zeros. */
  for (int i = 0; i < count; ++i) {
    source[i] = value(i);
    target[i] = 1;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  void (*const call)(void) = is_accumulate ? accumulate : put;
  check(call, is_accumulate);
  time_call(call, atol(argv[3]), atol(argv[4]), rank);
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  free(source);
  MPI_Finalize();
  return 0;
}
