/* While a thread waits in a split, another thread of its rank makes the call that the other ranks
 * make first: dunlin-run -n N c_split_test. */
#include <pthread.h>
#include <time.h>

#include "tests/bindings/c_expect.h"

typedef struct work {
  dunlin_communicator* communicator;
  dunlin_communicator* part; /* of the split */
  dunlin_code code;
} work;

/* The other thread of rank 0 is in its split by then. */
static void pause_shortly(void) {
  const struct timespec pause = {.tv_nsec = 50000000};
  nanosleep(&pause, NULL);
}

static void* reduce(void* argument) {
  work* const call = argument;
  int value = 1;
  call->code = dunlin_all_reduce(call->communicator, &value, &value, 1, DUNLIN_INT32, DUNLIN_SUM);
  if (call->code == DUNLIN_OK && value != dunlin_size(call->communicator))
    call->code = DUNLIN_INTERNAL;
  return NULL;
}

static void* split(void* argument) {
  work* const call = argument;
  const int rank = dunlin_rank(call->communicator);
  call->code = dunlin_split(call->communicator, rank % 2, -rank, &call->part);
  return NULL;
}

/* The threads of rank 0 are in both calls at a time, and the other ranks make `other` first. */
static void test_split_beside(void* (*other)(void*), dunlin_communicator* world,
                              dunlin_communicator* first) {
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  work beside = {first, NULL, DUNLIN_INTERNAL};
  work whole = {world, NULL, DUNLIN_INTERNAL};
  if (rank == 0) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, split, &whole) == 0);
    pause_shortly();
    other(&beside);
    EXPECT(pthread_join(thread, NULL) == 0);
  } else {
    other(&beside);
    split(&whole);
  }
  EXPECT_OK(beside.code);
  EXPECT_OK(whole.code);
  EXPECT(dunlin_size(whole.part) == (size + 1 - rank % 2) / 2);
  EXPECT(dunlin_rank(whole.part) == (size - 1 - rank) / 2);
  EXPECT_OK(dunlin_barrier(whole.part));
  EXPECT_OK(dunlin_release(whole.part));
  if (beside.part != NULL) {
    EXPECT_OK(dunlin_barrier(beside.part));
    EXPECT_OK(dunlin_release(beside.part));
  }
}

int main(void) {
  dunlin_job* job = NULL;
  EXPECT_OK(dunlin_init(NULL, &job));
  dunlin_communicator* const world = dunlin_world(job);
  dunlin_communicator* first = NULL;
  EXPECT_OK(dunlin_split(world, 0, dunlin_rank(world), &first));
  test_split_beside(reduce, world, first);
  test_split_beside(split, world, first);
  EXPECT_OK(dunlin_release(first));
  EXPECT_OK(dunlin_finalize(job));
  return 0;
}
