/* The C interface, compiled as C11, on every rank of a job: dunlin-run -n N c_test [victim]
 *
 * With `victim`, the last rank kills itself, and the others expect to be told. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/bindings/c/dunlin.h"

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              dunlin_last_error());                                                   \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == DUNLIN_OK)

enum { kCount = 5000 };

static void test_blocking(dunlin_communicator* world) {
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  double* const own = malloc(kCount * sizeof *own);
  double* const all = malloc((size_t)size * kCount * sizeof *all);
  double* const exchanged = malloc((size_t)size * kCount * sizeof *exchanged);
  for (int i = 0; i < kCount; ++i) own[i] = rank + i;
  EXPECT_OK(dunlin_all_gather(world, own, all, kCount, DUNLIN_FLOAT64));
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < kCount; ++i) EXPECT(all[r * kCount + i] == r + i);
  }
  EXPECT_OK(dunlin_all_to_all(world, all, exchanged, kCount, DUNLIN_FLOAT64));
  for (int r = 0; r < size; ++r) EXPECT(exchanged[r * kCount + 7] == rank + 7);
  EXPECT_OK(dunlin_reduce_scatter(world, exchanged, exchanged + rank * kCount, kCount,
                                  DUNLIN_FLOAT64, DUNLIN_MAX));
  EXPECT(exchanged[rank * kCount + 3] == size - 1 + 3);
  EXPECT_OK(dunlin_reduce(world, own, all, kCount, DUNLIN_FLOAT64, DUNLIN_SUM, size - 1));
  if (rank == size - 1) EXPECT(all[2] == size * (size - 1) / 2.0 + 2.0 * size);
  EXPECT_OK(dunlin_all_reduce(world, own, own, kCount, DUNLIN_FLOAT64, DUNLIN_AVERAGE));
  EXPECT(own[0] == (size - 1) / 2.0);
  own[1] = rank;
  EXPECT_OK(dunlin_broadcast(world, own, kCount, DUNLIN_FLOAT64, size - 1));
  EXPECT(own[1] == size - 1);
  EXPECT_OK(dunlin_all_reduce(world, NULL, NULL, 0, DUNLIN_INT8, DUNLIN_SUM));
  EXPECT_OK(dunlin_barrier(world));
  free(own);
  free(all);
  free(exchanged);
}

static void test_started(dunlin_communicator* world) {
  enum { kRequests = 10 };
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  static int values[kRequests][kCount];
  dunlin_request* requests[kRequests];
  for (int k = 0; k < kRequests; ++k) {
    for (int i = 0; i < kCount; ++i) values[k][i] = rank + k;
    EXPECT_OK(dunlin_start_all_reduce(world, values[k], values[k], kCount, DUNLIN_INT32, DUNLIN_SUM,
                                      &requests[k]));
  }
  for (int k = kRequests - 1; k >= 0; --k) {
    if (k % 2 == 0) {
      EXPECT_OK(dunlin_wait(&requests[k], -1));
    } else {
      dunlin_code code;
      while ((code = dunlin_test(&requests[k])) == DUNLIN_BUSY) {
      }
      EXPECT_OK(code);
    }
    EXPECT(requests[k] == NULL);
    EXPECT_OK(dunlin_wait(&requests[k], 0));
    for (int i = 0; i < kCount; ++i) EXPECT(values[k][i] == size * (size - 1) / 2 + size * k);
  }
  static signed char in[64];
  static signed char out[64 * 64];
  memset(in, rank + 1, sizeof in);
  EXPECT(size <= 64);
  EXPECT_OK(dunlin_start_all_gather(world, in, out, 1, DUNLIN_INT8, &requests[0]));
  EXPECT_OK(dunlin_start_broadcast(world, in + 32, 32, DUNLIN_INT8, 0, &requests[1]));
  EXPECT_OK(dunlin_start_reduce(world, in, in, 1, DUNLIN_INT8, DUNLIN_MIN, 0, &requests[2]));
  EXPECT_OK(dunlin_start_all_to_all(world, in + 32, out + 128, 0, DUNLIN_INT8, &requests[3]));
  EXPECT_OK(dunlin_start_reduce_scatter(world, out + 64, out + 64, 0, DUNLIN_INT8, DUNLIN_PRODUCT,
                                        &requests[4]));
  EXPECT_OK(dunlin_start_barrier(world, &requests[5]));
  for (int k = 0; k < 6; ++k) EXPECT_OK(dunlin_wait(&requests[k], -1));
  for (int r = 0; r < size; ++r) EXPECT(out[r] == r + 1);
  EXPECT(in[40] == 1);
}

static void test_communicators_and_memory(dunlin_communicator* world) {
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  dunlin_communicator* part = NULL;
  EXPECT_OK(dunlin_split(world, rank % 2, -rank, &part));
  EXPECT(dunlin_size(part) == (size + 1 - rank % 2) / 2);
  EXPECT(dunlin_rank(part) == (size - 1 - rank) / 2);
  void* memory = NULL;
  EXPECT_OK(dunlin_allocate(part, kCount * sizeof(float), &memory));
  float* const values = memory;
  EXPECT(values[kCount - 1] == 0);
  for (int i = 0; i < kCount; ++i) values[i] = 2;
  EXPECT_OK(dunlin_all_reduce(part, values, values, kCount, DUNLIN_FLOAT32, DUNLIN_PRODUCT));
  EXPECT(values[17] == (float)(1 << dunlin_size(part)));
  EXPECT_OK(dunlin_free(part, memory));
  int local = 0;
  EXPECT(dunlin_free(part, &local) == DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_release(part));
  EXPECT(dunlin_release(world) == DUNLIN_INVALID_ARGUMENT);
}

static void test_errors(dunlin_communicator* world) {
  int value = 0;
  EXPECT(dunlin_broadcast(world, &value, 1, DUNLIN_INT32, -1) == DUNLIN_OUT_OF_RANGE);
  EXPECT(strstr(dunlin_last_error(), "root -1") != NULL);
  EXPECT(dunlin_last_error_peer() == -1);
  EXPECT(dunlin_all_reduce(world, &value, &value, 1, (dunlin_data_type)99, DUNLIN_SUM) ==
         DUNLIN_INVALID_ARGUMENT);
  EXPECT(dunlin_all_reduce(world, &value, &value, 1, DUNLIN_INT32, (dunlin_op)99) ==
         DUNLIN_INVALID_ARGUMENT);
  EXPECT(strcmp(dunlin_code_name(DUNLIN_PEER_DEAD), "peer_dead") == 0);
  EXPECT(strcmp(dunlin_code_name((dunlin_code)99), "unknown") == 0);
  /* Others come late: the wait ends, the operation doesn't. */
  if (dunlin_size(world) == 1) return;
  EXPECT_OK(dunlin_barrier(world));
  dunlin_request* request = NULL;
  if (dunlin_rank(world) == 0) {
    EXPECT_OK(dunlin_start_barrier(world, &request));
    EXPECT(dunlin_test(&request) == DUNLIN_BUSY);
    EXPECT(dunlin_wait(&request, 0.05) == DUNLIN_DEADLINE_EXCEEDED);
    EXPECT(request != NULL);
    EXPECT(strstr(dunlin_last_error(), "barrier") != NULL && dunlin_last_error_peer() > 0);
    EXPECT_OK(dunlin_wait(&request, -1));
  } else {
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    EXPECT_OK(dunlin_barrier(world));
  }
}

static void test_death(dunlin_job* job) {
  dunlin_communicator* const world = dunlin_world(job);
  const int victim = dunlin_size(world) - 1;
  if (dunlin_rank(world) == victim) raise(SIGKILL);
  EXPECT(dunlin_barrier(world) == DUNLIN_PEER_DEAD);
  EXPECT(dunlin_last_error_peer() == victim);
  EXPECT(dunlin_barrier(world) == DUNLIN_PEER_DEAD);
  dunlin_leave(job);
  exit(0);
}

int main(int argc, char** argv) {
  dunlin_job* job = NULL;
  const dunlin_options options = {.background_progress =
                                      argc <= 1 || strcmp(argv[1], "quiet") != 0};
  EXPECT_OK(dunlin_init(&options, &job));
  dunlin_communicator* const world = dunlin_world(job);
  EXPECT(dunlin_local_rank(job) < dunlin_local_size(job));
  EXPECT(*dunlin_last_error() == '\0');
  if (argc > 1 && strcmp(argv[1], "victim") == 0) test_death(job);
  test_blocking(world);
  test_started(world);
  test_communicators_and_memory(world);
  test_errors(world);
  EXPECT_OK(dunlin_barrier(world));
  EXPECT_OK(dunlin_finalize(job));
  return 0;
}
