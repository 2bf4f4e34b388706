// What the functions that NCCL calls have in common: entry.cc, one_sided/entry.cc.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <exception>

#include <memory>
#include <string>
#include <type_traits>

#include "bindings/nccl/log.h"
#include "bindings/nccl/plugin.h"

namespace dunlin::nccl {

inline constexpr char kName[] = "Dunlin";
// The largest transfer. The sizes that test() returns are ints.
inline constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;
// There is no limit but that of descriptors, of which a connection takes about 12.
inline constexpr int kMaxComms = 1 << 16;

// Calls `body`, logs its error, and returns NCCL's code for it. Nothing is thrown into NCCL.
abi::Result guarded(auto&& body) {
  try {
    return report(body());
  } catch (const std::exception& error) {
    // The standard library throws where there is no memory, or no thread.
    return report(Status(Code::kResourceExhausted, error.what()));
  }
}

inline Status check(bool is_valid, const char* name) {
  if (is_valid) return Status::ok();
  return {Code::kInvalidArgument, std::string("an invalid argument: ") + name};
}

// The driver for memory of this type (NCCL_PTR_HOST, NCCL_PTR_CUDA): null for the host's.
inline Result<std::shared_ptr<GpuDriver>> driver_of(int type) {
  DUNLIN_TRY(check(type == abi::kPointerHost || type == abi::kPointerCuda, "type"));
  if (type == abi::kPointerHost) return std::shared_ptr<GpuDriver>();
  auto driver = Plugin::instance().gpu();
  if (driver) return driver;
  return Status(Code::kInvalidArgument,
                fmt::format("GPU memory is registered: {}", driver.status().message()));
}

// Listens for the device's peers. Writes the handle that leads to the listener.
inline Status start_listening(const Device& device, void* handle, void** listener) {
  DUNLIN_ASSIGN(auto made, ListenComm::create(device.config));
  DUNLIN_ASSIGN(const Handle bytes, made->handle());
  std::memcpy(handle, bytes.data(), bytes.size());
  *listener = made.release();
  return Status::ok();
}

inline abi::Result close_listen(void* listener) {
  return guarded([&] {
    delete static_cast<ListenComm*>(listener);
    return Status::ok();
  });
}

// What all versions of the properties say in the same words.
template <typename Properties>
void describe(const Device& device, int number, Properties* to) {
  *to = {};
  // NCCL reads the texts only.
  to->name = const_cast<char*>(device.name.c_str());
  to->pci_path = device.pci_path.empty() ? nullptr : const_cast<char*>(device.pci_path.c_str());
  to->guid = static_cast<std::uint64_t>(number);
  to->pointer_support = abi::kPointerHost;
  if (device.gpu_access.is_ok()) to->pointer_support |= abi::kPointerCuda;
  to->speed = device.speed;
  to->port = device.port;
  to->max_comms = kMaxComms;
  to->max_receives = kMaxGroup;
  if constexpr (!std::is_same_v<Properties, abi::PropertiesV8>) {
    to->virtual_device.count = 1;
    to->virtual_device.devices[0] = number;
    to->max_p2p_bytes = to->max_collective_bytes = kMaxTransfer;
  }
}

}  // namespace dunlin::nccl
