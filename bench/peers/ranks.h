// What the C++ programs in this folder share: ranks that are forked processes, distributed over the
// cores, and the median over chunks of the slowest rank's mean.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace peers {

constexpr int kChunks = 20;
constexpr int kMostRanks = 64;
using Means = std::array<double, kChunks>;

// Zeroed memory that the ranks share.
inline void* share(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  return memory;
}

// Runs `body(rank)` in a process for each rank. Returns whether all of them succeeded.
inline bool run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<unsigned> cores;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
    std::perror("sched_getaffinity");
    std::exit(1);
  }
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &usable)) cores.push_back(core);
  }
  for (int rank = 0; rank < size; ++rank) {
    if (fork() != 0) continue;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(cores[static_cast<std::size_t>(rank) % cores.size()], &core);
    sched_setaffinity(0, sizeof core, &core);
    body(rank);
    _exit(0);
  }
  bool is_ok = true;
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    wait(&status);
    is_ok = is_ok && status == 0;
  }
  return is_ok;
}

// Returns when all ranks have called it. `arrived` is in memory that they share and only counts up.
inline void align(std::atomic<int>& arrived, int size) {
  const int last = (arrived.fetch_add(1) / size + 1) * size;
  while (arrived.load() < last) sched_yield();
}

// Called on every rank with the same arguments; `barrier` aligns the ranks.
inline void time_chunks(long iterations, const std::function<void()>& barrier,
                        const std::function<void()>& once, Means& means) {
  const long each = (iterations + kChunks - 1) / kChunks;
  for (double& mean : means) {
    barrier();
    const auto began = std::chrono::steady_clock::now();
    for (long i = 0; i < each; ++i) once();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    mean = took.count() / static_cast<double>(each);
  }
}

// Returns microseconds.
inline double median_of_slowest(const Means* means_of_ranks, int size) {
  Means slowest{};
  for (int rank = 0; rank < size; ++rank) {
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const auto at = static_cast<std::size_t>(chunk);
      slowest[at] = std::max(slowest[at], means_of_ranks[rank][at]);
    }
  }
  std::sort(slowest.begin(), slowest.end());
  return slowest[kChunks / 2];
}

}  // namespace peers
