/* Times blocking calls for the MPI programs in this folder, as dunlin-perf times collectives. */
#pragma once

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kChunks = 20 };

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Rank 0 prints "us VALUE": the median over the chunks of the slowest rank's mean. */
static void time_call(void (*call)(void), long iterations, long warmup, int rank) {
  double means[kChunks];
  const long each = (iterations + kChunks - 1) / kChunks;
  for (long i = 0; i < warmup; ++i) call();
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    for (long i = 0; i < each; ++i) call();
    means[chunk] = (MPI_Wtime() - began) / (double)each;
  }
  MPI_Allreduce(MPI_IN_PLACE, means, kChunks, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(means, kChunks, sizeof(double), ascending);
  if (rank == 0) printf("us %.4f\n", means[kChunks / 2] * 1e6);
}
