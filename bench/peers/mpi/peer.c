/* Measures with MPI what dunlin-perf measures with Dunlin, for bench/peers/run. One rank of each
 * pair leads and times. Prints "NAME VALUE": half a round trip in microseconds, the round trips per
 * second of all pairs, or the time of a barrier, each as the median over chunks.
 *
 *   peer sendrecv SIZE ITERATIONS   ping-pong of MPI_Send and MPI_Recv
 *   peer put SIZE ITERATIONS        MPI_Put + MPI_Win_flush, timed at the origin
 *   peer putpong SIZE ITERATIONS    ping-pong of MPI_Put + MPI_Win_flush, the target polls the
 *                                   last byte (MPI has no put with notification)
 *   peer barrier 0 ITERATIONS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kChunks = 20 };

static int rank, size, peer, leads;
static long bytes;
static char *source, *target;
static MPI_Win window;
static unsigned char turn;

static void sendrecv(void) {
  if (leads) {
    MPI_Send(source, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(target, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(target, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(source, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  }
}

static void put(void) {
  if (!leads) return;
  MPI_Put(source, (int)bytes, MPI_BYTE, peer, 0, (int)bytes, MPI_BYTE, window);
  MPI_Win_flush(peer, window);
}

static void put_turn(void) {
  memset(source + bytes - 1, turn, 1);
  MPI_Put(source, (int)bytes, MPI_BYTE, peer, 0, (int)bytes, MPI_BYTE, window);
  MPI_Win_flush(peer, window);
}

static void await_turn(void) {
  const volatile unsigned char* last = (volatile unsigned char*)target + bytes - 1;
  while (*last != turn) MPI_Win_sync(window);
}

static void putpong(void) {
  ++turn;
  if (leads) put_turn();
  await_turn();
  if (!leads) put_turn();
}

static void barrier(void) {
  MPI_Barrier(MPI_COMM_WORLD);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Returns the seconds of one repetition, as the median over chunks. `rate` gets the repetitions per
 * second over all. */
static double measure(void (*once)(void), long iterations, double* rate) {
  double chunks[kChunks];
  const long each = iterations / kChunks + 1;
  for (long i = 0; i < iterations / 10 + 1; ++i) once();
  MPI_Barrier(MPI_COMM_WORLD);
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const double began = MPI_Wtime();
    for (long i = 0; i < each; ++i) once();
    chunks[chunk] = (MPI_Wtime() - began) / (double)each;
  }
  double total = 0;
  for (int chunk = 0; chunk < kChunks; ++chunk) total += chunks[chunk];
  *rate = kChunks / total;
  qsort(chunks, kChunks, sizeof(double), ascending);
  return chunks[kChunks / 2];
}

static void open_window(void) {
  MPI_Win_allocate(bytes + 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &target, &window);
  memset(target, 0, (size_t)bytes + 64);
  MPI_Win_lock_all(0, window);
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4 || size % 2 != 0) {
    fprintf(stderr, "usage: mpirun -n EVEN peer sendrecv|put|putpong|barrier SIZE ITERATIONS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  peer = rank ^ 1;
  leads = rank % 2 == 0;
  bytes = atol(argv[2]);
  source = malloc((size_t)bytes + 64);
  memset(source, 1,
         (size_t)bytes + 64); /* otherwise all its pages would be the one page of zeros */
  const int one_sided = strncmp(argv[1], "put", 3) == 0;
  if (one_sided) {
    open_window();
  } else {
    target = calloc(1, (size_t)bytes + 64);
  }
  void (*once)(void) = strcmp(argv[1], "sendrecv") == 0  ? sendrecv
                       : strcmp(argv[1], "put") == 0     ? put
                       : strcmp(argv[1], "putpong") == 0 ? putpong
                                                         : barrier;
  double rate = 0, rates = 0;
  const double seconds = measure(once, atol(argv[3]), &rate);
  if (!leads) rate = 0;
  const int halves = once == sendrecv || once == putpong ? 2 : 1;
  MPI_Reduce(&rate, &rates, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("us %.4f\nper_second %.1f\n", seconds * 1e6 / halves, rates);
  if (one_sided) {
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
  }
  MPI_Finalize();
  return 0;
}
