// The binary interface between NCCL and network plugins, versions 8 to 11, in Dunlin's own words.
// With it, the plugin builds without NCCL. NCCL keeps each version stable: it looks for the symbol
// `ncclNetPlugin_vN` of the newest version that it knows, and calls the functions in the table.
// tests/bindings/nccl compares this file with NCCL's headers where they are installed.
//
// The versions differ in the following:
//   9: sizes have 64 bits; properties give the largest transfers; there are virtual devices.
//  10: sends and receives take a handle for the profiler; connections have a traffic class.
//  11: init() makes a context, which finalize() ends; sends of several requests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::nccl::abi {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;

inline constexpr std::size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kPointerHost = 1;            // NCCL_PTR_HOST
inline constexpr int kPointerCuda = 2;            // NCCL_PTR_CUDA
inline constexpr int kMaxDevicesPerNic = 4;       // NCCL_NET_MAX_DEVS_PER_NIC
// The receives that NCCL may have in progress on a connection (NCCL_NET_MAX_REQUESTS).
inline constexpr int kMaxRequests = 32;

inline constexpr int kLogWarn = 2;              // NCCL_LOG_WARN
inline constexpr int kLogInfo = 3;              // NCCL_LOG_INFO
inline constexpr unsigned long kLogInit = 1;    // NCCL_INIT, which NCCL shows by default
inline constexpr unsigned long kLogNet = 16;    // NCCL_NET
inline constexpr unsigned long kLogAll = ~0UL;  // NCCL_ALL

using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
using Profiler = Result (*)(void** event, int type, void* handle, std::int64_t plugin, void* data);

// For devices that GPUs access themselves, which Dunlin doesn't have.
struct DeviceHandle {
  int type;
  int version;
  void* handle;
  std::size_t size;
  int needs_progress;
};

struct VirtualDevice {
  int count;
  int devices[kMaxDevicesPerNic];
};

struct CommConfig {
  int traffic_class;
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed;  // Mb/s
  int port;
  float latency;  // microseconds; 0: not known
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};

// What the properties of versions 9 and later begin with.
struct PropertiesHead {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};

struct PropertiesV9 : PropertiesHead {
  VirtualDevice virtual_device;
  std::size_t max_p2p_bytes;
  std::size_t max_collective_bytes;
};
using PropertiesV10 = PropertiesV9;

struct PropertiesV11 : PropertiesV10 {
  int max_requests_at_once;
};

// The functions that are the same in all versions. The tables below have them in NCCL's order.
using Devices = Result (*)(int* count);
using Accept = Result (*)(void* listener, void** receiver, DeviceHandle** device);
using RegisterMemory = Result (*)(void* comm, void* data, std::size_t size, int type,
                                  void** memory);
using RegisterDmaBuf = Result (*)(void* comm, void* data, std::size_t size, int type,
                                  std::uint64_t offset, int fd, void** memory);
using Deregister = Result (*)(void* comm, void* memory);
using Flush = Result (*)(void* receiver, int count, void** data, int* sizes, void** memories,
                         void** request);
using Test = Result (*)(void* request, int* is_done, int* sizes);
using Close = Result (*)(void* comm);
using DeviceMemory = Result (*)(void* comm, void* memory, void** device_memory);
using Consumed = Result (*)(void* receiver, int count, void* request);
using MakeDevice = Result (*)(int* device, VirtualDevice* properties);

using SendV8 = Result (*)(void* sender, void* data, int size, int tag, void* memory,
                          void** request);
using SendV9 = Result (*)(void* sender, void* data, std::size_t size, int tag, void* memory,
                          void** request);
using SendV10 = Result (*)(void* sender, void* data, std::size_t size, int tag, void* memory,
                           void* profiled, void** request);
using ReceiveV8 = Result (*)(void* receiver, int count, void** data, int* sizes, int* tags,
                             void** memories, void** request);
using ReceiveV9 = Result (*)(void* receiver, int count, void** data, std::size_t* sizes, int* tags,
                             void** memories, void** request);
using ReceiveV10 = Result (*)(void* receiver, int count, void** data, std::size_t* sizes, int* tags,
                              void** memories, void** profiled, void** request);

struct NetV8 {
  const char* name;
  Result (*init)(Logger logger);
  Devices devices;
  Result (*properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  Accept accept;
  RegisterMemory register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  SendV8 send;
  ReceiveV8 receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
  DeviceMemory device_memory;
  Consumed consumed;
};

struct NetV9 {
  const char* name;
  Result (*init)(Logger logger);
  Devices devices;
  Result (*properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  Accept accept;
  RegisterMemory register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  SendV9 send;
  ReceiveV9 receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
  DeviceMemory device_memory;
  Consumed consumed;
  MakeDevice make_device;
};

struct NetV10 {
  const char* name;
  Result (*init)(Logger logger, Profiler profiler);
  Devices devices;
  Result (*properties)(int device, PropertiesV10* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, CommConfig* config, void* handle, void** sender,
                    DeviceHandle** offload);
  Accept accept;
  RegisterMemory register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  SendV10 send;
  ReceiveV10 receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
  DeviceMemory device_memory;
  Consumed consumed;
  MakeDevice make_device;
};

struct NetV11 {
  const char* name;
  Result (*init)(void** context, std::uint64_t comm, CommConfig* config, Logger logger,
                 Profiler profiler);
  Devices devices;
  Result (*properties)(int device, PropertiesV11* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** sender, DeviceHandle** offload);
  Accept accept;
  RegisterMemory register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  SendV10 send;
  ReceiveV10 receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
  DeviceMemory device_memory;
  Consumed consumed;
  MakeDevice make_device;
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};

}  // namespace dunlin::nccl::abi
