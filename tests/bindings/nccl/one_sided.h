// Member: one rank of a group for one-sided transfers, which calls the plugin as NCCL does, under
// one of the versions of the interface.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "bindings/nccl/one_sided/abi.h"
#include "tests/bindings/nccl/ranks.h"

namespace dunlin::testing {

// The functions of a table. Those that differ between versions have the arguments of version 11.
struct OneSidedCalls {
  // Ends the process if the plugin has no such version. `is_rma`: the table for NCCL's host code,
  // of version 13.
  OneSidedCalls(int version, bool is_rma);

  abi::GinInit init;
  abi::Devices devices;
  // The kinds of memory, and the type of the device.
  std::function<abi::Result(int device, int* pointers, int* type)> properties;
  abi::GinListen listen;
  std::function<abi::Result(void* handles[], int ranks, int rank, void* listener, void** group)>
      connect;
  abi::GinRegister register_memory;
  abi::GinRegisterDmaBuf register_dma_buf;
  abi::GinDeregister deregister;
  abi::Close close_group;
  abi::Close close_listen;
  abi::Close destroy_context;
  std::function<abi::Result(void* group, void** context)> create_context;
  std::function<std::remove_pointer_t<decltype(abi::GinV11::put)>> put;
  std::function<std::remove_pointer_t<decltype(abi::GinV11::put_signal)>> put_signal;
  decltype(abi::GinV13::get) get = nullptr;
  decltype(abi::GinV13::flush) flush = nullptr;
  abi::GinTest test;
  abi::GinProgress progress;
  abi::GinLastError last_error;
  abi::Close finalize;
};

// An offset in memory that was registered.
struct At {
  void* memory = nullptr;
  std::uint64_t offset = 0;
};

struct Member {
  // Connects all ranks. The group uses the plugin's first device.
  Member(Rank& from, int version, bool is_rma = false);

  void* add(void* data, std::size_t size, int type);
  void* put(int to, At from, At there, std::size_t size);
  void* put_signal(int to, At from, At there, std::size_t size, At signal, std::uint64_t value,
                   std::uint32_t operation = abi::kSignalAdd);
  void* get(int from, At there, At here, std::size_t size);
  bool is_done(void* request);
  void wait(void* request);
  // Calls progress() until `ready` returns true.
  void advance_until(const std::function<bool()>& ready, const char* what);
  bool has_failed();
  void close();

  Rank& rank;
  OneSidedCalls calls;
  void* init_context = nullptr;
  void* group = nullptr;
  void* context = nullptr;  // that transfers take
};

}  // namespace dunlin::testing
