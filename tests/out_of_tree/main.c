/* A C program outside Dunlin's tree, built against the installed library only: an all-reduce, an
 * all-gather and an average with both neighbors in a ring, checked. */
#include <dunlin/dunlin.h>
#include <stdio.h>
#include <stdlib.h>

static void check(dunlin_code code) {
  if (code == DUNLIN_OK) return;
  fprintf(stderr, "%s: %s\n", dunlin_code_name(code), dunlin_last_error());
  exit(1);
}

static void expect(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

int main(void) {
  dunlin_job* job = NULL;
  check(dunlin_init(NULL, &job));
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);
  double mine = rank + 1;
  double sum = 0;
  check(dunlin_all_reduce(world, &mine, &sum, 1, DUNLIN_FLOAT64, DUNLIN_SUM));
  expect(sum == size * (size + 1) / 2.0, "the sum");
  double* const all = calloc((size_t)size, sizeof *all);
  check(dunlin_all_gather(world, &mine, all, 1, DUNLIN_FLOAT64));
  expect(all[size - 1] == size, "the last rank's number");
  free(all);
  if (size > 2) {
    const dunlin_neighbor both[] = {{(rank + 1) % size, 0.5}, {(rank + size - 1) % size, 0.5}};
    const dunlin_neighbor to[] = {{both[0].rank, 1}, {both[1].rank, 1}};
    double average = 0;
    check(
        dunlin_neighbor_average(job, NULL, &mine, &average, 1, DUNLIN_FLOAT64, 0, both, 2, to, 2));
    expect(average == (both[0].rank + both[1].rank + 2) / 2.0, "the neighbors' average");
  }
  if (rank == 0) printf("C: %d ranks\n", size);
  check(dunlin_finalize(job));
  return 0;
}
