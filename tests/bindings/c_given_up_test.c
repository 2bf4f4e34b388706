/* After a partial all-reduce has returned without success, it no longer uses its memory, in C as in
 * no other language, where memory is kept for it: dunlin-run -n 2 c_given_up_test, with
 * DUNLIN_DEADLINE=3s.
 *
 * Rank 0's call stands behind others that it has started, each of which waits for rank 1 for the
 * deadline. A blocking call waits 5 s longer than the deadline: it returns before it has had its
 * turn, which comes a second later, while rank 1 makes the same call. */
#include "tests/bindings/c_expect.h"

enum { kAhead = 3, kCount = 5000 };

/* The latter if the peer gave no sign of life either, on a busy host. */
static int is_given_up(dunlin_code code) {
  return code == DUNLIN_DEADLINE_EXCEEDED || code == DUNLIN_PEER_STALLED;
}

int main(void) {
  dunlin_job* job = NULL;
  const dunlin_options options = {.background_progress = 1};
  EXPECT_OK(dunlin_init(&options, &job));
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int both[] = {0, 1};
  static double ahead[kAhead][kCount], x[kCount], y[kCount];
  dunlin_request* requests[kAhead];
  if (rank == 0) {
    for (int k = 0; k < kAhead; ++k) {
      EXPECT_OK(dunlin_start_partial_all_reduce(job, NULL, (uint64_t)(k + 1), both, 2, ahead[k],
                                                ahead[k], kCount, DUNLIN_FLOAT64, DUNLIN_SUM,
                                                &requests[k]));
    }
    const dunlin_code code = dunlin_partial_all_reduce(job, NULL, kAhead + 1, both, 2, x, y, kCount,
                                                       DUNLIN_FLOAT64, DUNLIN_SUM);
    EXPECT(is_given_up(code));
    /* From here on, both arrays belong to the program. */
    for (int i = 0; i < kCount; ++i) x[i] = y[i] = -1;
  }
  dunlin_request* meeting = NULL;
  EXPECT_OK(dunlin_start_barrier(world, &meeting));
  EXPECT_OK(dunlin_wait(&meeting, 100));
  if (rank == 1) {
    const dunlin_code code = dunlin_partial_all_reduce(job, NULL, kAhead + 1, both, 2, x, y, kCount,
                                                       DUNLIN_FLOAT64, DUNLIN_SUM);
    EXPECT(is_given_up(code));
  }
  EXPECT_OK(dunlin_start_barrier(world, &meeting));
  EXPECT_OK(dunlin_wait(&meeting, 100));
  if (rank == 0) {
    for (int i = 0; i < kCount; ++i) EXPECT(x[i] == -1 && y[i] == -1);
    for (int k = 0; k < kAhead; ++k) EXPECT(dunlin_wait(&requests[k], 100) != DUNLIN_OK);
  }
  EXPECT_OK(dunlin_finalize(job));
  return 0;
}
