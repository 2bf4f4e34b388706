/* The C interface, compiled as C11, on every rank of a job: dunlin-run -n N c_test [victim]
 *
 * With `victim`, the last rank kills itself, and the others expect to be told. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bindings/c_expect.h"

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

static void test_names(dunlin_job* job) {
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  dunlin_communicator* part = NULL;
  EXPECT_OK(dunlin_split(world, 0, rank, &part));
  int value = 1;
  EXPECT_OK(dunlin_name_next(rank == 0 ? "a" : "b"));
  EXPECT_OK(dunlin_name_next("the last name counts"));
  EXPECT_OK(dunlin_all_reduce(part, &value, &value, 1, DUNLIN_INT32, DUNLIN_MAX));
  if (rank == 0) EXPECT_OK(dunlin_name_next(NULL)); /* as no name */
  EXPECT_OK(dunlin_all_reduce(part, &value, &value, 1, DUNLIN_INT32, DUNLIN_MAX));
  if (dunlin_size(world) > 1) {
    dunlin_request* request = NULL;
    EXPECT_OK(dunlin_name_next(rank == 0 ? "a" : "b"));
    EXPECT_OK(dunlin_start_broadcast(part, &value, 1, DUNLIN_INT32, 0, &request));
    EXPECT(dunlin_wait(&request, -1) == DUNLIN_INVALID_ARGUMENT);
    EXPECT(strstr(dunlin_last_error(), "named \"a\"") != NULL);
    EXPECT(strstr(dunlin_last_error(), "named \"b\"") != NULL);
  }
  if (dunlin_size(world) > 1 && rank < 2) {
    const int both[] = {0, 1};
    EXPECT_OK(dunlin_name_next(rank == 0 ? "a" : "b"));
    EXPECT(dunlin_partial_all_reduce(job, "named", 0, both, 2, &value, &value, 1, DUNLIN_INT32,
                                     DUNLIN_SUM) == DUNLIN_INVALID_ARGUMENT);
    EXPECT_OK(dunlin_partial_all_reduce(job, "named", 0, both, 2, &value, &value, 1, DUNLIN_INT32,
                                        DUNLIN_SUM));
  }
  EXPECT_OK(dunlin_barrier(world));
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
  /* The other ranks are late: the wait times out, and the operation continues. */
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

static void test_neighbors(dunlin_job* job) {
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  const int left = (rank + size - 1) % size;
  const size_t one = size > 1 ? 1 : 0; /* a single rank has no neighbors */
  const dunlin_neighbor from[] = {{left, 0.5}};
  const dunlin_neighbor to[] = {{(rank + 1) % size, 2}};
  static double x[kCount], y[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = rank + i;
  EXPECT_OK(dunlin_check_neighbors(job, from, one, to, one));
  EXPECT_OK(
      dunlin_neighbor_average(job, "c", x, y, kCount, DUNLIN_FLOAT64, 0.25, from, one, to, one));
  for (int i = 0; i < kCount; ++i) EXPECT(y[i] == 0.25 * (rank + i) + (one ? left + i : 0));
  dunlin_request* request = NULL;
  EXPECT_OK(dunlin_start_neighbor_average(job, NULL, x, x, kCount, DUNLIN_FLOAT64, 1, from, one, to,
                                          one, &request));
  EXPECT_OK(dunlin_wait(&request, -1));
  EXPECT(request == NULL && x[5] == rank + 5 + (one ? left + 5 : 0));

  int own[100];
  for (int i = 0; i < 100; ++i) own[i] = 1000 * rank + i;
  dunlin_gathered* gathered = NULL;
  EXPECT_OK(dunlin_neighbor_gather(job, NULL, own, (size_t)rank + 1, DUNLIN_INT32, from, one, to,
                                   one, &gathered));
  if (one) {
    EXPECT(dunlin_gathered_count(gathered, 0) == (size_t)left + 1);
    const int* const theirs = dunlin_gathered_data(gathered, 0);
    for (int i = 0; i <= left; ++i) EXPECT(theirs[i] == 1000 * left + i);
  }
  dunlin_gathered_free(gathered);
  EXPECT_OK(dunlin_start_neighbor_gather(job, "later", own, 100, DUNLIN_INT32, from, one, to, one,
                                         &gathered, &request));
  EXPECT_OK(dunlin_wait(&request, -1));
  if (one) EXPECT(((const int*)dunlin_gathered_data(gathered, 0))[99] == 1000 * left + 99);
  dunlin_gathered_free(gathered);
  EXPECT(dunlin_neighbor_average(job, NULL, own, own, 1, DUNLIN_INT32, 1, NULL, 0, NULL, 0) ==
         DUNLIN_INVALID_ARGUMENT);
  const dunlin_neighbor absent[] = {{size, 1}};
  EXPECT(dunlin_neighbor_average(job, NULL, x, y, 1, DUNLIN_FLOAT64, 1, absent, 1, NULL, 0) ==
         DUNLIN_OUT_OF_RANGE);
  if (size > 1) {
    EXPECT(dunlin_check_neighbors(job, from, rank == 0 ? 0 : 1, to, 1) == DUNLIN_INVALID_ARGUMENT);
    EXPECT(strstr(dunlin_last_error(), "does not expect it") != NULL);
  }
}

static void test_window(dunlin_job* job) {
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  dunlin_neighbor others[16];
  size_t count = 0;
  for (int r = 0; r < size; ++r) {
    if (r != rank) others[count++] = (dunlin_neighbor){r, 0.5};
  }
  static float initial[kCount], copy[kCount];
  for (int i = 0; i < kCount; ++i) initial[i] = (float)(rank + 1);
  dunlin_window* window = NULL;
  EXPECT_OK(dunlin_window_create(job, "c", initial, kCount, DUNLIN_FLOAT32, 1, others, count,
                                 others, count, &window));
  float* const tensor = dunlin_window_tensor(window);
  EXPECT(tensor[kCount - 1] == rank + 1);
  EXPECT_OK(dunlin_window_put(window, others, count, 1));
  EXPECT_OK(dunlin_window_accumulate(window, NULL, 0, 2));
  EXPECT(tensor[3] == 2 * (rank + 1));
  EXPECT_OK(dunlin_window_flush(window, -1));
  EXPECT_OK(dunlin_barrier(world));
  float expected = 2 * (float)(rank + 1);
  double p = 0;
  for (size_t k = 0; k < count; ++k) {
    uint64_t deposits = 0;
    EXPECT_OK(dunlin_window_buffer(window, others[k].rank, copy, &p, &deposits));
    EXPECT(copy[9] == 1.5F * (float)(others[k].rank + 1) && p == 1.5 && deposits == 2);
    expected += 0.5F * copy[9];
  }
  EXPECT_OK(dunlin_window_update(window, 1, NULL, 0, 0, copy)); /* the window's weights */
  EXPECT(copy[kCount - 1] == expected && tensor[0] == 2 * (rank + 1));
  EXPECT_OK(dunlin_barrier(world));
  EXPECT_OK(dunlin_window_collect(window));
  EXPECT_OK(dunlin_window_get_p(window, &p));
  EXPECT(p == 2 + 1.5 * (double)count);
  EXPECT(tensor[7] == 2 * (rank + 1) + 2 * (expected - 2 * (rank + 1)));

  for (int i = 0; i < kCount; ++i) tensor[i] = (float)(10 * rank);
  EXPECT_OK(dunlin_window_set_p(window, 3));
  EXPECT_OK(dunlin_window_publish(window));
  EXPECT_OK(dunlin_barrier(world));
  EXPECT_OK(dunlin_window_get(window, others, count, -1));
  for (size_t k = 0; k < count; ++k) {
    EXPECT_OK(dunlin_window_buffer(window, others[k].rank, copy, &p, NULL));
    EXPECT(copy[1] == 5 * (float)others[k].rank && p == 1.5);
  }
  const dunlin_neighbor self[] = {{rank, 1}};
  EXPECT(dunlin_window_put(window, self, 1, 1) == DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_window_free(window));
  EXPECT(dunlin_window_create(job, "c", initial, 4, DUNLIN_INT32, 1, NULL, 0, NULL, 0, &window) ==
         DUNLIN_INVALID_ARGUMENT);
  /* A type that does not exist at one rank is an error at all. */
  const dunlin_data_type type = rank == 0 ? (dunlin_data_type)99 : DUNLIN_FLOAT32;
  EXPECT(dunlin_window_create(job, "c", initial, 4, type, 1, NULL, 0, NULL, 0, &window) ==
         DUNLIN_INVALID_ARGUMENT);
}

/* A counter that is read and written in all ranks' buffers, under the mutex. */
static void test_mutex(dunlin_job* job) {
  enum { kRounds = 20 };
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  dunlin_neighbor others[16];
  size_t count = 0;
  for (int r = 0; r < size; ++r) {
    if (r != rank) others[count++] = (dunlin_neighbor){r, 1};
  }
  const double zero = 0;
  dunlin_window* window = NULL;
  EXPECT_OK(dunlin_window_create(job, "counter", &zero, 1, DUNLIN_FLOAT64, 1, others, count, others,
                                 count, &window));
  double* const counter = dunlin_window_tensor(window);
  dunlin_mutex* mutex = NULL;
  EXPECT_OK(dunlin_mutex_create(job, "counter", size - 1, &mutex));
  for (int round = 0; round < kRounds; ++round) {
    int has_holder_died = 1;
    EXPECT_OK(dunlin_mutex_lock(mutex, -1, &has_holder_died));
    EXPECT(has_holder_died == 0);
    if (round == 0) EXPECT(dunlin_mutex_lock(mutex, -1, NULL) == DUNLIN_INVALID_ARGUMENT);
    for (size_t k = 0; k < count; ++k) {
      double theirs = 0;
      EXPECT_OK(dunlin_window_buffer(window, others[k].rank, &theirs, NULL, NULL));
      if (theirs > *counter) *counter = theirs;
    }
    *counter += 1;
    EXPECT_OK(dunlin_window_put(window, NULL, 0, 1));
    EXPECT_OK(dunlin_window_flush(window, -1));
    EXPECT_OK(dunlin_mutex_unlock(mutex));
  }
  EXPECT(dunlin_mutex_unlock(mutex) == DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_barrier(world));
  for (size_t k = 0; k < count; ++k) {
    double theirs = 0;
    EXPECT_OK(dunlin_window_buffer(window, others[k].rank, &theirs, NULL, NULL));
    if (theirs > *counter) *counter = theirs;
  }
  EXPECT(*counter == kRounds * size);
  EXPECT_OK(dunlin_mutex_free(mutex));
  /* dunlin_finalize() frees the window. */
}

/* All pairs of ranks, in the same order on all ranks; then all ranks, with counted calls. */
static void test_partial(dunlin_job* job) {
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  static double x[kCount], y[kCount];
  uint64_t number = 0;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      ++number;
      if (rank != a && rank != b) continue;
      for (int i = 0; i < kCount; ++i) x[i] = rank + i;
      const int pair[] = {b, a};
      EXPECT_OK(dunlin_partial_all_reduce(job, "pairs", number, pair, 2, x, y, kCount,
                                          DUNLIN_FLOAT64, DUNLIN_SUM));
      for (int i = 0; i < kCount; ++i) EXPECT(y[i] == a + b + 2 * i);
    }
  }
  int all[16];
  for (int r = 0; r < size; ++r) all[r] = r;
  dunlin_request* requests[2];
  static float models[2][kCount];
  for (int k = 0; k < 2; ++k) {
    for (int i = 0; i < kCount; ++i) models[k][i] = (float)(rank * (k + 1));
    EXPECT_OK(dunlin_start_partial_all_reduce(job, NULL, 0, all, (size_t)size, models[k], models[k],
                                              kCount, DUNLIN_FLOAT32, DUNLIN_AVERAGE,
                                              &requests[k]));
  }
  for (int k = 1; k >= 0; --k) {
    EXPECT_OK(dunlin_wait(&requests[k], -1));
    for (int i = 0; i < kCount; ++i) EXPECT(models[k][i] == (float)((size - 1) * (k + 1)) / 2);
  }
  EXPECT(dunlin_partial_all_reduce(job, NULL, 1, all, (size_t)size, x, y, 1, DUNLIN_FLOAT64,
                                   DUNLIN_SUM) == DUNLIN_INVALID_ARGUMENT); /* a former number */
  EXPECT(dunlin_partial_all_reduce(job, NULL, 0, NULL, 0, x, y, 1, DUNLIN_FLOAT64, DUNLIN_SUM) ==
         DUNLIN_INVALID_ARGUMENT); /* without this rank */
  EXPECT(strstr(dunlin_last_error(), "no member") != NULL);
  const int strangers[] = {rank, size};
  EXPECT(dunlin_partial_all_reduce(job, NULL, 0, strangers, 2, x, y, 1, DUNLIN_FLOAT64,
                                   DUNLIN_SUM) == DUNLIN_OUT_OF_RANGE);
  EXPECT(dunlin_partial_all_reduce(job, NULL, 0, all, (size_t)size, x, y, 1, DUNLIN_FLOAT64,
                                   (dunlin_op)99) == DUNLIN_INVALID_ARGUMENT);
  /* Calls that differ are an error. The next call succeeds. */
  if (size > 1) {
    EXPECT(dunlin_partial_all_reduce(job, NULL, 0, all, (size_t)size, x, y, rank == 0 ? 1 : 2,
                                     DUNLIN_FLOAT64, DUNLIN_SUM) == DUNLIN_INVALID_ARGUMENT);
    EXPECT(dunlin_last_error_peer() >= 0);
  }
  x[0] = 1;
  EXPECT_OK(dunlin_partial_all_reduce(job, NULL, 0, all, (size_t)size, x, x, 1, DUNLIN_FLOAT64,
                                      DUNLIN_SUM));
  EXPECT(x[0] == size);
}

/* Averages keep the sum of all models, whatever the groups are. */
static void test_groups(dunlin_job* job) {
  enum { kIterations = 40 };
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  const dunlin_group_source sources[] = {DUNLIN_GROUPS_SMART, DUNLIN_GROUPS_STATIC,
                                         DUNLIN_GROUPS_RANDOM, DUNLIN_GROUPS_BUFFERED};
  static float model[kCount];
  for (int s = 0; s < 4; ++s) {
    const dunlin_groups_options options = {
        .source = sources[s], .group_size = 2, .hosts = 1, .workers_per_host = size};
    dunlin_groups* groups = NULL;
    EXPECT_OK(dunlin_groups_create(job, "c", kCount, s == 0 ? NULL : &options, &groups));
    for (int i = 0; i < kCount; ++i) model[i] = (float)(rank + 1);
    for (uint64_t k = 0; k < kIterations; ++k) {
      if (k % 2 == 0) {
        EXPECT_OK(dunlin_groups_average(groups, k, model));
        continue;
      }
      dunlin_request* request = NULL;
      EXPECT_OK(dunlin_start_groups_average(groups, k, model, &request));
      EXPECT_OK(dunlin_wait(&request, -1));
    }
    EXPECT(dunlin_groups_average(groups, 3, model) == DUNLIN_INVALID_ARGUMENT);
    dunlin_groups_statistics statistics;
    EXPECT_OK(dunlin_groups_get_statistics(groups, &statistics));
    EXPECT(statistics.iterations == kIterations);
    /* Groups that were formed with a rank that leaves fail; a static schedule forms none. */
    EXPECT(statistics.failures == 0 || sources[s] != DUNLIN_GROUPS_STATIC);
    EXPECT(statistics.members >= 2 * statistics.groups);
    EXPECT(statistics.server == (sources[s] == DUNLIN_GROUPS_STATIC ? -1 : 0));
    EXPECT(statistics.groups > 0 || size == 1);
    EXPECT_OK(dunlin_groups_leave(groups));
    EXPECT_OK(dunlin_groups_leave(groups));
    EXPECT(dunlin_groups_average(groups, kIterations, model) == DUNLIN_INVALID_ARGUMENT);
    EXPECT(strstr(dunlin_last_error(), "has left") != NULL);
    double sum[kCount];
    for (int i = 0; i < kCount; ++i) sum[i] = model[i];
    EXPECT_OK(dunlin_all_reduce(world, sum, sum, kCount, DUNLIN_FLOAT64, DUNLIN_SUM));
    for (int i = 0; i < kCount; ++i) {
      const double difference = sum[i] - size * (size + 1) / 2.0;
      EXPECT(difference < 1e-3 && difference > -1e-3);
    }
  }
  /* Without copies. */
  const dunlin_groups_options options = {.source = DUNLIN_GROUPS_STATIC};
  dunlin_groups* groups = NULL;
  EXPECT_OK(dunlin_groups_create(job, "own memory", 2, &options, &groups));
  float* own = NULL;
  EXPECT_OK(dunlin_groups_model(groups, &own));
  EXPECT(own[0] == 0 && own[1] == 0);
  own[1] = (float)rank;
  for (uint64_t k = 0; k < 2; ++k) EXPECT_OK(dunlin_groups_average(groups, k, NULL));
  EXPECT_OK(dunlin_groups_model(groups, &own));
  EXPECT(own[0] == 0);
  EXPECT(own[1] == (float)(size - 1) / 2); /* all workers of the host, in phase 1 */
  EXPECT(dunlin_groups_average(groups, 2, own) == DUNLIN_INVALID_ARGUMENT);

  dunlin_groups_options wrong = {.source = (dunlin_group_source)99};
  EXPECT(dunlin_groups_create(job, "wrong", 2, &wrong, &groups) == DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_barrier(world));
  if (size > 1) { /* one rank's mistake becomes an error on all ranks */
    const dunlin_groups_options right = {.source = DUNLIN_GROUPS_STATIC};
    EXPECT(dunlin_groups_create(job, "wrong", 2, rank == 0 ? &wrong : &right, &groups) ==
           DUNLIN_INVALID_ARGUMENT);
  }
  wrong = (dunlin_groups_options){.group_size = 1}; /* ignored if there is only one rank */
  EXPECT(dunlin_groups_create(job, "wrong", 2, &wrong, &groups) ==
         (size > 1 ? DUNLIN_INVALID_ARGUMENT : DUNLIN_OK));
  wrong = (dunlin_groups_options){.hosts = size + 1, .workers_per_host = 1};
  EXPECT(dunlin_groups_create(job, "wrong", 2, &wrong, &groups) == DUNLIN_INVALID_ARGUMENT);
  if (size > 1) {
    EXPECT(dunlin_groups_create(job, "differs", rank == 0 ? 2 : 3, NULL, &groups) ==
           DUNLIN_INVALID_ARGUMENT);
  }
}

/* The other ranks learn of the death of the victim, which is in their group, and continue without
 * it. */
static void test_death_in_group(dunlin_job* job, int victim) {
  const int rank = dunlin_rank(dunlin_world(job));
  int all[16];
  for (int r = 0; r <= victim; ++r) all[r] = r;
  double x = 1;
  EXPECT(dunlin_partial_all_reduce(job, NULL, 0, all, (size_t)victim + 1, &x, &x, 1, DUNLIN_FLOAT64,
                                   DUNLIN_SUM) == DUNLIN_PEER_DEAD);
  EXPECT(dunlin_last_error_peer() == victim);
  x = rank;
  EXPECT_OK(dunlin_partial_all_reduce(job, NULL, 0, all, (size_t)victim, &x, &x, 1, DUNLIN_FLOAT64,
                                      DUNLIN_SUM));
  EXPECT(x == victim * (victim - 1) / 2);
}

static void test_death(dunlin_job* job) {
  dunlin_communicator* const world = dunlin_world(job);
  const int victim = dunlin_size(world) - 1;
  if (dunlin_rank(world) == victim) raise(SIGKILL);
  EXPECT(dunlin_barrier(world) == DUNLIN_PEER_DEAD);
  EXPECT(dunlin_last_error_peer() == victim);
  EXPECT(dunlin_barrier(world) == DUNLIN_PEER_DEAD);
  test_death_in_group(job, victim);
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
  test_names(job);
  test_errors(world);
  test_neighbors(job);
  test_window(job);
  test_mutex(job);
  test_partial(job);
  test_groups(job);
  EXPECT_OK(dunlin_barrier(world));
  EXPECT_OK(dunlin_finalize(job));
  return 0;
}
