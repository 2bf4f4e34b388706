/* All-reduce from C: averages while other work goes on.
 *
 *   dunlin-run -n 4 all_reduce_c */
#include <dunlin/dunlin.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 100000 };

static void check(dunlin_code code, const char* what) {
  if (code == DUNLIN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, dunlin_code_name(code), dunlin_last_error());
  exit(1);
}

int main(void) {
  dunlin_job* job = NULL;
  check(dunlin_init(NULL, &job), "dunlin_init");
  dunlin_communicator* const world = dunlin_world(job);
  const int rank = dunlin_rank(world);
  const int size = dunlin_size(world);

  void* memory = NULL;
  check(dunlin_allocate(world, kCount * sizeof(float), &memory), "dunlin_allocate");
  float* const gradients = memory;
  for (int i = 0; i < kCount; ++i) gradients[i] = (float)(rank + i % 10);

  dunlin_request* request = NULL;
  check(dunlin_start_all_reduce(world, gradients, gradients, kCount, DUNLIN_FLOAT32, DUNLIN_AVERAGE,
                                &request),
        "dunlin_start_all_reduce");
  /* Other work goes here; a background thread moves the operation on. */
  check(dunlin_wait(&request, -1), "dunlin_wait");

  for (int i = 0; i < kCount; ++i) {
    const float expected = (float)(size - 1) / 2 + (float)(i % 10);
    const float error = gradients[i] - expected;
    if (error > 1e-5F || error < -1e-5F) {
      fprintf(stderr, "gradient %d is %g, not %g\n", i, (double)gradients[i], (double)expected);
      return 1;
    }
  }
  if (rank == 0) printf("%d gradients were averaged over %d ranks\n", kCount, size);
  check(dunlin_finalize(job), "dunlin_finalize");
  return 0;
}
