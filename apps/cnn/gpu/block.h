// How kernels are written so that nvcc and the host's compiler build them from one source. A kernel
// is a sequence of steps of a block: Block::each() runs a function for each of its threads, and the
// next step begins when all of them are done. On a GPU, every thread runs the function and waits at
// a barrier. On the host, which runs blocks one after another, it is a loop.
//
// What lives longer than a step is either DUNLIN_SHARED, which all threads of the block access, or
// PerThread.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/kernels/gpu/element.h"

#ifdef __CUDACC__
#define DUNLIN_SHARED __shared__
#else
#define DUNLIN_SHARED
#endif

namespace dunlin::cnn::gpu {

// Threads of a block, in all kernels of this folder.
inline constexpr unsigned kThreads = 256;

#ifdef __CUDACC__

class Block {
 public:
  __device__ unsigned index() const { return blockIdx.x; }
  __device__ unsigned count() const { return gridDim.x; }
  template <typename Step>
  __device__ __forceinline__ void each(const Step& step) const {
    step(threadIdx.x);
    __syncthreads();
  }
};

template <typename T>
class PerThread {
 public:
  __device__ T& operator[](unsigned) { return value_; }

 private:
  T value_;
};

#else

class Block {
 public:
  Block(unsigned index, unsigned count) : index_(index), count_(count) {}
  unsigned index() const { return index_; }
  unsigned count() const { return count_; }
  template <typename Step>
  void each(const Step& step) const {
    for (unsigned thread = 0; thread < kThreads; ++thread) step(thread);
  }

 private:
  unsigned index_;
  unsigned count_;
};

template <typename T>
class PerThread {
 public:
  T& operator[](unsigned thread) { return values_[thread]; }

 private:
  std::array<T, kThreads> values_;
};

#endif

// Calls function(i) for all i below `count`, divided among all threads of all blocks. Neighboring
// threads take neighboring numbers.
template <typename Function>
DUNLIN_DEVICE void for_all(const Block& block, std::uint32_t count, const Function& function) {
  block.each([&](unsigned thread) {
    const std::uint32_t stride = block.count() * kThreads;
    for (std::uint32_t i = block.index() * kThreads + thread; i < count; i += stride) function(i);
  });
}

// The sum of one number of each thread, in an order that is always the same.
DUNLIN_DEVICE float sum_of(const Block& block, PerThread<float>& parts) {
  DUNLIN_SHARED float sums[kThreads];
  block.each([&](unsigned thread) { sums[thread] = parts[thread]; });
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    block.each([&](unsigned thread) {
      if (thread < half) sums[thread] += sums[thread + half];
    });
  }
  const float sum = sums[0];
  block.each([](unsigned) {});  // all threads have read it
  return sum;
}

}  // namespace dunlin::cnn::gpu
