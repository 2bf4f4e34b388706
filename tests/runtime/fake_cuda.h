// What tests tell the library that stands in for libcuda.so.1 (fake_cuda.cc), and learn from it.
#pragma once

#include <map>

namespace dunlin::testing {

struct FakeCuda {
  int init_code = 0;
  int devices = 2;
  std::map<int, int> attributes;  // of all devices, by number
  int alloc_code = 0;
  int copy_code = 0;  // of the query behind a copy
  bool is_managed = false;
  int queries_per_copy = 2;

  int contexts = 0;  // retained
  int depth = 0;     // of the stack of current contexts
  int allocations = 0;
  int streams = 0;
  int flushes = 0;
  int synchronized_pointers = 0;
};

// The library exports it as "fake_cuda".
using FakeCudaState = FakeCuda&();

}  // namespace dunlin::testing
