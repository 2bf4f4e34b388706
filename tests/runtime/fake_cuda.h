// The state of the replacement for libcuda.so.1 (fake_cuda.cc), which tests read and change.
#pragma once

#include <map>

namespace dunlin::testing {

struct FakeCuda {
  int init_code = 0;
  int devices = 2;
  std::map<int, int> attributes;  // of all devices, by attribute number
  int alloc_code = 0;
  int copy_code = 0;  // result of the query after a copy
  bool is_managed = false;
  int queries_per_copy = 2;

  int contexts = 0;  // retained
  int depth = 0;     // depth of the stack of current contexts
  int allocations = 0;
  int streams = 0;
  int flushes = 0;
  int synchronized_pointers = 0;
};

// The type of the function "fake_cuda", which the library exports.
using FakeCudaState = FakeCuda&();

}  // namespace dunlin::testing
