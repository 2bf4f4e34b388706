/* The C interface on the memory of a GPU, on every rank of a job: dunlin-run -n N c_gpu_test
 * [absent]
 *
 * The GPU is the stand-in for CUDA's driver (tests/fake_cuda) if LD_LIBRARY_PATH has it as
 * libcuda.so.1. The test uses the driver as a CUDA program would. With `absent`, there is no such
 * GPU, and the test expects to be told. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/bindings/c_expect.h"

enum { kCount = 5000 };

/* Functions of the driver. */
typedef int to_device(uint64_t to, const void* from, size_t bytes, void* stream);
typedef int to_host(void* to, uint64_t from, size_t bytes, void* stream);
typedef int query(void* stream);
typedef int init(unsigned flags);
typedef int get_device(int* device, int number);
typedef int retain(void** context, int device);
typedef int push(void* context);

/* Stores the address of the function in the pointer to a function at `to`. */
static void find(const char* name, void* to) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library == NULL ? NULL : dlsym(library, name);
  EXPECT(found != NULL);
  memcpy(to, &found, sizeof found);
}

/* What a CUDA program does at its start. */
static void use_gpu(int number) {
  init* start = NULL;
  get_device* get = NULL;
  retain* take = NULL;
  push* make_current = NULL;
  int device = 0;
  void* context = NULL;
  find("cuInit", &start);
  find("cuDeviceGet", &get);
  find("cuDevicePrimaryCtxRetain", &take);
  find("cuCtxPushCurrent_v2", &make_current);
  EXPECT(start(0) == 0);
  EXPECT(get(&device, number) == 0);
  EXPECT(take(&context, device) == 0);
  EXPECT(make_current(context) == 0);
}

static void await_copy(void) {
  enum { kNotReady = 600 };
  query* is_done = NULL;
  find("cuStreamQuery", &is_done);
  int code;
  while ((code = is_done(NULL)) == kNotReady) {
  }
  EXPECT(code == 0);
}

static void write_to(void* to, const float* values, size_t count) {
  to_device* copy = NULL;
  find("cuMemcpyHtoDAsync_v2", &copy);
  EXPECT(copy((uint64_t)(uintptr_t)to, values, count * sizeof *values, NULL) == 0);
  await_copy();
}

static void read_from(const void* from, float* values, size_t count) {
  to_host* copy = NULL;
  find("cuMemcpyDtoHAsync_v2", &copy);
  EXPECT(copy(values, (uint64_t)(uintptr_t)from, count * sizeof *values, NULL) == 0);
  await_copy();
}

static void test_all_reduce(dunlin_communicator* gpus) {
  static float values[kCount];
  const int rank = dunlin_rank(gpus);
  const int size = dunlin_size(gpus);
  void* memory = NULL;
  EXPECT_OK(dunlin_allocate(gpus, sizeof values, &memory));
  for (int i = 0; i < kCount; ++i) values[i] = (float)(i % 97 + rank);
  write_to(memory, values, kCount);
  EXPECT_OK(dunlin_all_reduce(gpus, memory, memory, kCount, DUNLIN_FLOAT32, DUNLIN_SUM));
  read_from(memory, values, kCount);
  for (int i = 0; i < kCount; ++i)
    EXPECT(values[i] == (float)(i % 97 * size + size * (size - 1) / 2));
  EXPECT(dunlin_all_reduce(gpus, values, values, kCount, DUNLIN_FLOAT32, DUNLIN_SUM) ==
         DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_barrier(gpus));
  EXPECT_OK(dunlin_free(gpus, memory));
}

/* Every rank deposits twice with the next one. */
static void test_window(dunlin_job* job) {
  static float values[kCount];
  const int size = dunlin_size(dunlin_world(job));
  const int rank = dunlin_rank(dunlin_world(job));
  const dunlin_neighbor next = {(rank + 1) % size, 1};
  const dunlin_neighbor last = {(rank + size - 1) % size, 0.5};
  const size_t neighbors = size > 1 ? 1 : 0;
  dunlin_window* window = NULL;
  for (int i = 0; i < kCount; ++i) values[i] = (float)(4 * rank);
  EXPECT_OK(dunlin_window_create_on_gpu(job, "gpu", 0, values, kCount, DUNLIN_FLOAT32, 1, &last,
                                        neighbors, &next, neighbors, &window));
  EXPECT_OK(dunlin_window_accumulate(window, NULL, 0, 1));
  EXPECT_OK(dunlin_window_accumulate(window, NULL, 0, 1));
  EXPECT_OK(dunlin_window_flush(window, -1));
  EXPECT_OK(dunlin_barrier(dunlin_world(job)));
  EXPECT_OK(dunlin_window_update(window, 0.25, NULL, 0, 0, NULL));
  read_from(dunlin_window_tensor(window), values, kCount);
  const float expected = (float)(rank + (size > 1 ? 4 * last.rank : 0));
  for (int i = 0; i < kCount; ++i) EXPECT(values[i] == expected);
  EXPECT(dunlin_window_update(window, 1, NULL, 0, 0, values) == DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_window_free(window));
}

int main(int argc, char** argv) {
  dunlin_job* job = NULL;
  dunlin_communicator* gpus = NULL;
  dunlin_communicator* part = NULL;
  EXPECT_OK(dunlin_init(NULL, &job));
  if (argc > 1 && strcmp(argv[1], "absent") == 0) {
    EXPECT(dunlin_on_gpu(job, 1000, &gpus) != DUNLIN_OK);
    EXPECT(gpus == NULL);
    EXPECT(strstr(dunlin_last_error(), "GPU") != NULL ||
           strstr(dunlin_last_error(), "CUDA") != NULL);
  } else {
    use_gpu(0);
    test_window(job);
    /* A GPU that rank 0 doesn't have is an error at all ranks. */
    const int first = dunlin_rank(dunlin_world(job)) == 0;
    EXPECT(dunlin_on_gpu(job, first ? 1000 : 0, &gpus) != DUNLIN_OK);
    EXPECT(first || strstr(dunlin_last_error(), "failed at rank 0") != NULL);
    EXPECT_OK(dunlin_on_gpu(job, 0, &gpus));
    test_all_reduce(gpus);
    EXPECT_OK(dunlin_split(gpus, dunlin_rank(gpus) % 2, 0, &part));
    test_all_reduce(part);
    EXPECT_OK(dunlin_release(part));
    EXPECT_OK(dunlin_release(gpus));
  }
  EXPECT_OK(dunlin_finalize(job));
  return 0;
}
