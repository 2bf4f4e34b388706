// The binary interface between NCCL and plugins for one-sided transfers, in Dunlin's own words.
// NCCL's kernels start these transfers (GIN: GPU-initiated networking), or NCCL's host code does
// (RMA); either way a thread of NCCL calls the functions below. They are looked for beside those of
// bindings/nccl/abi.h, under the symbols `ncclGinPlugin_v11` (NCCL 2.28), `ncclGinPlugin_v12`
// (2.29), `ncclGinPlugin_v13` and `ncclRmaPlugin_v13` (2.30 and later).
//
// The versions differ in the following:
//   12: several connections to each rank, by number.
//   13: contexts in place of connections; gets and flushes.
// This is written after src/include/plugin/gin in NCCL's repository.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/nccl/abi.h"

namespace dunlin::nccl::abi {

// NCCL_NET_DEVICE_GIN_PROXY: a thread of the host carries out what kernels have asked for.
inline constexpr int kDeviceTypeProxy = 2;
inline constexpr std::uint32_t kSignalIncrement = 1;  // NCCL_NET_SIGNAL_OP_INC
inline constexpr std::uint32_t kSignalAdd = 2;        // NCCL_NET_SIGNAL_OP_ADD

struct VirtualDeviceV12 {
  int count;
  int devices[8];
};

struct PropertiesV12 : PropertiesHead {
  VirtualDeviceV12 virtual_device;
  std::size_t max_p2p_bytes;
  std::size_t max_collective_bytes;
  int max_requests_at_once;
  std::int16_t rail;   // -1: not known
  std::int16_t plane;  // -1: not known
};

struct GinConfig {
  int signals;
  int counters;
  int contexts;
  int queue_depth;
  int traffic_class;
};

// The functions that are the same in all versions. A group is NCCL's `collComm`.
using GinInit = Result (*)(void** context, std::uint64_t comm, Logger logger);
using GinListen = Result (*)(void* context, int device, void* handle, void** listener);
// Each registered memory has two handles, one for this process and one for kernels.
using GinRegister = Result (*)(void* group, void* data, std::size_t size, int type,
                               std::uint64_t flags, void** memory, void** device_memory);
using GinRegisterDmaBuf = Result (*)(void* group, void* data, std::size_t size, int type,
                                     std::uint64_t offset, int fd, std::uint64_t flags,
                                     void** memory, void** device_memory);
using GinDeregister = Result (*)(void* group, void* memory);
using GinTest = Result (*)(void* group, void* request, int* is_done);
using GinProgress = Result (*)(void* group);
using GinLastError = Result (*)(void* context, bool* has_error);

struct GinV11 {
  const char* name;
  GinInit init;
  Devices devices;
  Result (*properties)(int device, PropertiesV11* properties);
  GinListen listen;
  Result (*connect)(void* context, void* handles[], int ranks, int rank, void* listener,
                    void** group);
  Result (*create_context)(void* group, int signals, int counters, void** context,
                           DeviceHandle** device);
  GinRegister register_memory;
  GinRegisterDmaBuf register_dma_buf;
  GinDeregister deregister;
  Close destroy_context;
  Close close_group;
  Close close_listen;
  Result (*put)(void* group, std::uint64_t from_offset, void* from, std::size_t size,
                std::uint64_t to_offset, void* to, std::uint32_t rank, void** request);
  Result (*put_signal)(void* group, std::uint64_t from_offset, void* from, std::size_t size,
                       std::uint64_t to_offset, void* to, std::uint32_t rank,
                       std::uint64_t signal_offset, void* signal, std::uint64_t value,
                       std::uint32_t operation, void** request);
  GinTest test;
  GinProgress progress;
  GinLastError last_error;
  Close finalize;
};

struct GinV12 {
  const char* name;
  GinInit init;
  Devices devices;
  Result (*properties)(int device, PropertiesV11* properties);
  GinListen listen;
  Result (*connect)(void* context, void* handles[], int ranks, int rank, int connections,
                    int queue_depth, void* listener, void** group);
  Result (*create_context)(void* group, int signals, int counters, int contexts, void** context,
                           DeviceHandle** device);
  GinRegister register_memory;
  GinRegisterDmaBuf register_dma_buf;
  GinDeregister deregister;
  Close destroy_context;
  Close close_group;
  Close close_listen;
  Result (*put)(void* group, std::uint64_t from_offset, void* from, std::size_t size,
                std::uint64_t to_offset, void* to, std::uint32_t rank, int connection,
                void** request);
  Result (*put_signal)(void* group, std::uint64_t from_offset, void* from, std::size_t size,
                       std::uint64_t to_offset, void* to, std::uint32_t rank,
                       std::uint64_t signal_offset, void* signal, std::uint64_t value,
                       std::uint32_t operation, int connection, void** request);
  GinTest test;
  GinProgress progress;
  GinLastError last_error;
  Close finalize;
};

// Also the table of `ncclRmaPlugin_v13`. Transfers and progress() take what create_context() made.
struct GinV13 {
  const char* name;
  GinInit init;
  Devices devices;
  Result (*properties)(int device, PropertiesV12* properties);
  GinListen listen;
  Result (*connect)(void* context, void* handles[], int ranks, int rank, void* listener,
                    void** group);
  Result (*create_context)(void* group, GinConfig* config, void** context, DeviceHandle** device);
  GinRegister register_memory;
  GinRegisterDmaBuf register_dma_buf;
  GinDeregister deregister;
  Close destroy_context;
  Close close_group;
  Close close_listen;
  Result (*put)(void* context, int number, std::uint64_t from_offset, void* from, std::size_t size,
                std::uint64_t to_offset, void* to, std::uint32_t rank, void** request);
  Result (*put_signal)(void* context, int number, std::uint64_t from_offset, void* from,
                       std::size_t size, std::uint64_t to_offset, void* to, std::uint32_t rank,
                       std::uint64_t signal_offset, void* signal, std::uint64_t value,
                       std::uint32_t operation, void** request);
  Result (*get)(void* context, int number, std::uint64_t from_offset, void* from, std::size_t size,
                std::uint64_t to_offset, void* to, std::uint32_t rank, void** request);
  Result (*flush)(void* context, int number, void* memory, std::uint32_t rank, void** request);
  GinTest test;
  GinProgress progress;
  GinLastError last_error;
  Close finalize;
};

}  // namespace dunlin::nccl::abi
