/* What memory allows for a deposit in a window, for bench/peers/window: an addition of a float32
 * vector to another one in place, or a copy, by one core. Nothing protects a reader of the target.
 * Prints "us VALUE": the median over the chunks of the mean.
 *
 *   window_limit accumulate|put SIZE ITERATIONS WARMUP
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kChunks = 20 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Not inlined, so that no pass is left out. */
__attribute__((noinline)) static void accumulate(float* restrict target,
                                                 const float* restrict source, long count) {
  for (long i = 0; i < count; ++i) target[i] += source[i];
}

__attribute__((noinline)) static void put(float* restrict target, const float* restrict source,
                                          long count) {
  memcpy(target, source, (size_t)count * sizeof(float));
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: window_limit accumulate|put SIZE ITERATIONS WARMUP\n");
    return 2;
  }
  void (*const call)(float*, const float*, long) =
      strcmp(argv[1], "accumulate") == 0 ? accumulate : put;
  const long count = atol(argv[2]) / (long)sizeof(float);
  float *source, *target;
  if (posix_memalign((void**)&source, 4096, (size_t)count * sizeof(float)) != 0 ||
      posix_memalign((void**)&target, 4096, (size_t)count * sizeof(float)) != 0) {
    return 1;
  }
  for (long i = 0; i < count; ++i) source[i] = target[i] = (float)(i % 61 + 1);
  const long each = (atol(argv[3]) + kChunks - 1) / kChunks;
  for (long i = 0; i < atol(argv[4]); ++i) call(target, source, count);
  double means[kChunks];
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const double began = now();
    for (long i = 0; i < each; ++i) call(target, source, count);
    means[chunk] = (now() - began) / (double)each;
  }
  qsort(means, kChunks, sizeof(double), ascending);
  printf("us %.4f\n", means[kChunks / 2]);
  return 0;
}
