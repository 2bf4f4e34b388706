/* MPI_Allreduce as `dunlin-perf all-reduce` times its own, for bench/peers/all_reduce: float32 sums in
 * place, blocking calls one after the other in memory that is reused, the ranks aligned by a barrier
 * before each chunk. Prints the median over the chunks of the slowest rank's mean: "us VALUE".
 *
 *   mpirun -n N all_reduce_mpi SIZE ITERATIONS WARMUP
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kChunks = 20 };

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

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  double means[kChunks];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4) {
    fprintf(stderr, "usage: mpirun -n N all_reduce_mpi SIZE ITERATIONS WARMUP\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  count = (int)(atol(argv[1]) / (long)sizeof(float));
  const long each = (atol(argv[2]) + kChunks - 1) / kChunks;
  if (posix_memalign((void**)&data, 4096, (size_t)count * sizeof(float)) != 0) return 1;
  check();
  memset(data, 0, (size_t)count * sizeof(float)); /* zeros stay zeros */
  for (long i = 0; i < atol(argv[3]); ++i) all_reduce();
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    for (long i = 0; i < each; ++i) all_reduce();
    means[chunk] = (MPI_Wtime() - began) / (double)each;
  }
  MPI_Allreduce(MPI_IN_PLACE, means, kChunks, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(means, kChunks, sizeof(double), ascending);
  if (rank == 0) printf("us %.4f\n", means[kChunks / 2] * 1e6);
  MPI_Finalize();
  return 0;
}
