// The functions that NCCL calls, and the tables in which it finds them. Each function checks its
// arguments and calls the plugin.
#include <cstring>
#include <type_traits>

#include "bindings/nccl/calls.h"

namespace dunlin::nccl {
namespace {

using abi::Result;

Result init(abi::Logger logger) {
  return guarded([&] { return Plugin::instance().init(logger); });
}

Result init_v10(abi::Logger logger, abi::Profiler) {
  return init(logger);
}

Result init_v11(void** context, std::uint64_t, abi::CommConfig*, abi::Logger logger,
                abi::Profiler) {
  if (context != nullptr) *context = &Plugin::instance();
  return guarded([&] { return Plugin::instance().begin_context(logger); });
}

Result finalize(void*) {
  return guarded([] {
    Plugin::instance().end_context();
    return Status::ok();
  });
}

Result set_attributes(void*, void*) {
  return abi::kSuccess;
}

Result devices(int* count) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(count != nullptr, "count"));
    *count = Plugin::instance().device_count();
    return Status::ok();
  });
}

template <typename Properties>
Result properties(int number, Properties* to) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(to != nullptr, "properties"));
    DUNLIN_ASSIGN(const Device* const device, Plugin::instance().device(number));
    describe(*device, number, to);
    if constexpr (std::is_same_v<Properties, abi::PropertiesV11>) to->max_requests_at_once = 1;
    return Status::ok();
  });
}

Result listen(int number, void* handle, void** listener) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(handle != nullptr && listener != nullptr, "handle"));
    *listener = nullptr;
    DUNLIN_ASSIGN(const Device* const device, Plugin::instance().device(number));
    return start_listening(*device, handle, listener);
  });
}

Result listen_v11(void*, int number, void* handle, void** listener) {
  return listen(number, handle, listener);
}

Result connect(int number, void* handle, void** sender, abi::DeviceHandle**) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(handle != nullptr && sender != nullptr, "handle"));
    *sender = nullptr;
    DUNLIN_ASSIGN(const Device* const device, Plugin::instance().device(number));
    Handle bytes;
    std::memcpy(bytes.data(), handle, bytes.size());
    DUNLIN_ASSIGN(auto comm, Plugin::instance().connector().connect(device->config, bytes));
    *sender = static_cast<Comm*>(comm.release());
    return Status::ok();
  });
}

Result connect_v10(int number, abi::CommConfig*, void* handle, void** sender,
                   abi::DeviceHandle** offload) {
  return connect(number, handle, sender, offload);
}

Result connect_v11(void*, int number, void* handle, void** sender, abi::DeviceHandle** offload) {
  return connect(number, handle, sender, offload);
}

Result accept(void* listener, void** receiver, abi::DeviceHandle**) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(listener != nullptr && receiver != nullptr, "listener"));
    *receiver = nullptr;
    DUNLIN_ASSIGN(auto comm, static_cast<ListenComm*>(listener)->accept());
    *receiver = static_cast<Comm*>(comm.release());
    return Status::ok();
  });
}

Result register_memory(void* comm, void* data, std::size_t size, int type, void** memory) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(comm != nullptr && memory != nullptr, "comm"));
    *memory = nullptr;
    DUNLIN_ASSIGN(auto gpu, driver_of(type));
    DUNLIN_ASSIGN(*memory, static_cast<Comm*>(comm)->add_memory(data, size, std::move(gpu)));
    return Status::ok();
  });
}

// NCCL calls it only for devices that ask for DMA-BUFs. The plugin's transports export GPU memory
// themselves where they need to.
Result register_dma_buf(void*, void*, std::size_t, int, std::uint64_t, int, void** memory) {
  if (memory != nullptr) *memory = nullptr;
  return guarded(
      [] { return Status(Code::kInvalidArgument, "the plugin does not register DMA-BUFs"); });
}

Result deregister(void* comm, void* memory) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(comm != nullptr, "comm"));
    return static_cast<Comm*>(comm)->remove_memory(static_cast<Memory*>(memory));
  });
}

Result send(void* comm, void* data, std::size_t size, int tag, void* memory, void** request) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(comm != nullptr && request != nullptr, "comm"));
    *request = nullptr;
    DUNLIN_TRY(check(size <= kMaxTransfer, "size"));
    auto& sender = static_cast<SendComm&>(*static_cast<Comm*>(comm));
    DUNLIN_ASSIGN(*request, sender.send(data, size, tag, memory));
    return Status::ok();
  });
}

Result send_v8(void* comm, void* data, int size, int tag, void* memory, void** request) {
  // A negative size becomes one that is too large.
  return send(comm, data, static_cast<std::size_t>(size), tag, memory, request);
}

Result send_v10(void* comm, void* data, std::size_t size, int tag, void* memory, void*,
                void** request) {
  return send(comm, data, size, tag, memory, request);
}

template <typename Size>
Result receive(void* comm, int count, void** data, Size* sizes, int* tags, void** memories,
               void** request) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(comm != nullptr && request != nullptr, "comm"));
    *request = nullptr;
    DUNLIN_TRY(check(count >= 1 && count <= static_cast<int>(kMaxGroup), "count"));
    std::array<Target, kMaxGroup> targets;
    for (int i = 0; i < count; ++i) {
      targets[i] = {data[i], static_cast<std::size_t>(sizes[i]), tags[i], memories[i]};
      if constexpr (std::is_signed_v<Size>) DUNLIN_TRY(check(sizes[i] >= 0, "size"));
    }
    auto& receiver = static_cast<ReceiveComm&>(*static_cast<Comm*>(comm));
    DUNLIN_ASSIGN(*request, receiver.receive({targets.data(), static_cast<std::size_t>(count)}));
    return Status::ok();
  });
}

Result receive_v10(void* comm, int count, void** data, std::size_t* sizes, int* tags,
                   void** memories, void**, void** request) {
  return receive(comm, count, data, sizes, tags, memories, request);
}

// A receive is done only when the GPU can see its data: transports flush a GPU that needs it before
// they pass on what comes behind. NCCL takes a null request for a flush that is done.
Result flush(void*, int, void**, int*, void**, void** request) {
  if (request != nullptr) *request = nullptr;
  return abi::kSuccess;
}

Result test(void* request, int* is_done, int* sizes) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(request != nullptr && is_done != nullptr, "request"));
    *is_done = 0;
    auto* const tested = static_cast<Request*>(request);
    DUNLIN_ASSIGN(const bool done, tested->comm->test(tested, sizes));
    *is_done = done ? 1 : 0;
    return Status::ok();
  });
}

Result close_comm(void* comm) {
  return guarded([&] {
    if (comm != nullptr) Plugin::instance().close(std::unique_ptr<Comm>(static_cast<Comm*>(comm)));
    return Status::ok();
  });
}

}  // namespace

#define DUNLIN_NCCL_EXPORT extern "C" [[gnu::visibility("default")]] const

DUNLIN_NCCL_EXPORT abi::NetV8 ncclNetPlugin_v8 = {kName,
                                                  init,
                                                  devices,
                                                  properties<abi::PropertiesV8>,
                                                  listen,
                                                  connect,
                                                  accept,
                                                  register_memory,
                                                  register_dma_buf,
                                                  deregister,
                                                  send_v8,
                                                  receive<int>,
                                                  flush,
                                                  test,
                                                  close_comm,
                                                  close_comm,
                                                  close_listen,
                                                  nullptr,
                                                  nullptr};

DUNLIN_NCCL_EXPORT abi::NetV9 ncclNetPlugin_v9 = {kName,
                                                  init,
                                                  devices,
                                                  properties<abi::PropertiesV9>,
                                                  listen,
                                                  connect,
                                                  accept,
                                                  register_memory,
                                                  register_dma_buf,
                                                  deregister,
                                                  send,
                                                  receive<std::size_t>,
                                                  flush,
                                                  test,
                                                  close_comm,
                                                  close_comm,
                                                  close_listen,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr};

DUNLIN_NCCL_EXPORT abi::NetV10 ncclNetPlugin_v10 = {kName,
                                                    init_v10,
                                                    devices,
                                                    properties<abi::PropertiesV10>,
                                                    listen,
                                                    connect_v10,
                                                    accept,
                                                    register_memory,
                                                    register_dma_buf,
                                                    deregister,
                                                    send_v10,
                                                    receive_v10,
                                                    flush,
                                                    test,
                                                    close_comm,
                                                    close_comm,
                                                    close_listen,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr};

DUNLIN_NCCL_EXPORT abi::NetV11 ncclNetPlugin_v11 = {kName,
                                                    init_v11,
                                                    devices,
                                                    properties<abi::PropertiesV11>,
                                                    listen_v11,
                                                    connect_v11,
                                                    accept,
                                                    register_memory,
                                                    register_dma_buf,
                                                    deregister,
                                                    send_v10,
                                                    receive_v10,
                                                    flush,
                                                    test,
                                                    close_comm,
                                                    close_comm,
                                                    close_listen,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    finalize,
                                                    set_attributes};

}  // namespace dunlin::nccl
