/* Times averages over a node graph as `dunlin-perf neighbor-all-reduce` times Dunlin's, for
 * bench/peers/neighbor: MPI_Neighbor_allgatherv over a graph communicator, followed by the weighted
 * sum of float32 vectors. Prints "us VALUE": the median over the chunks of the slowest rank's mean.
 *
 *   mpirun -n N neighbor ring|exponential SIZE ITERATIONS WARMUP
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { kMostNeighbors = 64 };

static int rank, size, count, degree;
static int sources[kMostNeighbors], destinations[kMostNeighbors];
static int counts[kMostNeighbors], places[kMostNeighbors];
static float *input, *output, *gathered;
static MPI_Comm graph;

/* The same edges as dunlin-graph's: a ring has one direction; the exponential graph has edges to i
 * + 1, 2, 4, ... */
static void find_neighbors(const char* name) {
  const int is_ring = strcmp(name, "ring") == 0;
  for (int hop = 1; hop < size; hop *= 2) {
    destinations[degree] = (rank + hop) % size;
    sources[degree] = (rank + size - hop) % size;
    ++degree;
    if (is_ring) break;
  }
}

static void average(void) {
  const float weight = 1.0f / (float)(degree + 1);
  MPI_Neighbor_allgatherv(input, count, MPI_FLOAT, gathered, counts, places, MPI_FLOAT, graph);
  for (int i = 0; i < count; ++i) {
    float sum = input[i];
    for (int k = 0; k < degree; ++k) sum += gathered[places[k] + i];
    output[i] = weight * sum;
  }
}

static float value(int of, int i) {
  return (float)(i % 61) / 64 + (float)of;
}

static void check(void) {
  for (int i = 0; i < count; ++i) input[i] = value(rank, i);
  average();
  for (int i = 0; i < count; ++i) {
    double sum = value(rank, i);
    for (int k = 0; k < degree; ++k) sum += value(sources[k], i);
    if (fabs(output[i] - sum / (degree + 1)) < 1e-5) continue;
    fprintf(stderr, "wrong data at element %d\n", i);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5) {
    fprintf(stderr, "usage: mpirun -n N neighbor ring|exponential SIZE ITERATIONS WARMUP\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  find_neighbors(argv[1]);
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, degree, sources, MPI_UNWEIGHTED, degree,
                                 destinations, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
  count = (int)(atol(argv[2]) / (long)sizeof(float));
  for (int k = 0; k < degree; ++k) {
    counts[k] = count;
    places[k] = k * count;
  }
  const size_t bytes = (size_t)count * sizeof(float);
  if (posix_memalign((void**)&input, 4096, bytes) != 0 ||
      posix_memalign((void**)&output, 4096, bytes) != 0 ||
      posix_memalign((void**)&gathered, 4096, bytes * (size_t)degree) != 0) {
    return 1;
  }
  check();
  time_call(average, atol(argv[3]), atol(argv[4]), rank);
  MPI_Finalize();
  return 0;
}
