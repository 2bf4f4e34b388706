// FakeCuda: what tests read and change of the stand-in for libcuda.so.1 (README.md in this folder).
// The library exports the function "fake_cuda", which returns it. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace dunlin::testing {

class FakeCuda {
 public:
  virtual ~FakeCuda() = default;

  // Restores the state of a process that has just loaded the library, with the settings of the
  // environment. Waits for the work of streams first. Allocations stay.
  virtual void reset() = 0;
  // Forgets the memory, streams, events and modules that are left because a call that gives them
  // back has failed on purpose, so that later tests don't count them. Nothing uses them any more.
  virtual void write_off() = 0;

  // Settings. `devices` and `attributes` take effect for drivers that are loaded later.
  int devices = 2;
  bool has_peer_access = true;    // between devices, as cuDeviceCanAccessPeer says
  std::map<int, int> attributes;  // of all devices, by attribute number
  int init_code = 0;
  bool is_managed = false;  // whether all memory claims to be managed memory
  // The call that fails, counted from the next one on, and the code that it returns; 0: none. Calls
  // that only describe a device or an error are not counted.
  std::atomic<std::uint64_t> failing_call = 0;
  std::atomic<int> failing_code = 0;
  // The call at which the process is killed (SIGKILL), counted likewise; 0: none.
  std::atomic<std::uint64_t> killing_call = 0;
  std::string failing_name;  // only calls of this function count, as "cuMemAlloc"; empty: all
  // The piece of work that fails, counted in the same way over all streams. From then on, all
  // streams return the code, as after an illegal address on a GPU.
  std::atomic<std::uint64_t> failing_work = 0;
  std::atomic<int> work_code = 0;
  // The copy that writes a wrong first byte, counted from the last reset; 0: none.
  std::atomic<std::uint64_t> corrupted_copy = 0;
  // Each piece of work begins up to this much later. The delay is pseudo-random and follows from
  // the seed.
  std::atomic<unsigned> delay_us = 0;
  std::atomic<std::uint64_t> seed = 1;

  // Whether some thread captures a graph, in the mode in which other threads are restricted. Then
  // all calls that count fail, unless the thread's own mode is relaxed.
  std::atomic<bool> is_capturing = false;
  // The stream that is being captured; null: none.
  std::atomic<void*> captured_stream = nullptr;

  // Streams begin no work until release().
  virtual void hold() = 0;
  virtual void release() = 0;

  // The bytes of GPU memory, which only the stand-in may access at its addresses. Null where no
  // allocation has `size` bytes from `address` on.
  virtual std::byte* contents(const void* address, std::size_t size) = 0;

  // Counts of what exists now.
  virtual int allocations() = 0;
  virtual int opened() = 0;  // memory of other processes
  std::atomic<int> streams = 0;
  std::atomic<int> events = 0;
  std::atomic<int> modules = 0;
  std::atomic<int> contexts = 0;  // retained
  std::atomic<int> pinned = 0;    // pieces of host memory
  // Returns the depth of the calling thread's stack of current contexts.
  virtual int depth() = 0;

  // Counts since the last reset.
  std::atomic<std::uint64_t> calls = 0;
  std::atomic<std::uint64_t> copies = 0;
  // Those from or to host memory that is not pinned, for which a GPU's driver may block.
  std::atomic<std::uint64_t> host_copies = 0;
  std::atomic<std::uint64_t> launches = 0;
  std::atomic<int> flushes = 0;
  std::atomic<int> synchronized_pointers = 0;
  std::atomic<unsigned> context_flags = 8;  // of all contexts; CU_CTX_MAP_HOST is always set
  std::atomic<int> context_flag_sets = 0;
  // Allocations that were freed while another process, which lives, had them open. CUDA does not
  // define what happens then.
  std::atomic<int> freed_while_open = 0;
  // The name of the call that failed last by `failing_call`.
  std::string failed_call;
};

// The type of the function "fake_cuda".
using FakeCudaState = FakeCuda&();

}  // namespace dunlin::testing
