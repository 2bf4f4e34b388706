// The functions that NCCL calls for one-sided transfers, and the tables in which it finds them.
// What NCCL calls a group's context is the group itself: all contexts share its connections.
#include <cstring>
#include <type_traits>

#include "bindings/nccl/calls.h"
#include "bindings/nccl/one_sided/abi.h"

namespace dunlin::nccl {
namespace {

using abi::Result;

// NCCL does not call finalize() as often as this, so neither of them counts communicators.
Result init(void** context, std::uint64_t, abi::Logger logger) {
  if (context != nullptr) *context = &Plugin::instance();
  return guarded([&] { return Plugin::instance().init(logger); });
}

Result finalize(void*) {
  return abi::kSuccess;
}

int device_count() {
  return Plugin::instance().reaches_gpus() ? Plugin::instance().device_count() : 0;
}

Result devices(int* count) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(count != nullptr, "count"));
    *count = device_count();
    return Status::ok();
  });
}

dunlin::Result<const Device*> find_device(int number) {
  if (number < 0 || number >= device_count()) {
    return Status(Code::kOutOfRange,
                  fmt::format("there is no device {} for one-sided transfers", number));
  }
  return Plugin::instance().device(number);
}

template <typename Properties>
Result properties(int number, Properties* to) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(to != nullptr, "properties"));
    DUNLIN_ASSIGN(const Device* const device, find_device(number));
    describe(*device, number, to);
    to->device_type = abi::kDeviceTypeProxy;
    to->max_requests_at_once = 1;
    if constexpr (std::is_same_v<Properties, abi::PropertiesV12>) to->rail = to->plane = -1;
    return Status::ok();
  });
}

Result listen(void*, int number, void* handle, void** listener) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(handle != nullptr && listener != nullptr, "handle"));
    *listener = nullptr;
    DUNLIN_ASSIGN(const Device* const device, find_device(number));
    return start_listening(*device, handle, listener);
  });
}

Result connect(void*, void* handles[], int ranks, int rank, void* listener, void** group) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr, "group"));
    *group = nullptr;
    DUNLIN_TRY(check(handles != nullptr && listener != nullptr, "handles"));
    DUNLIN_TRY(check(ranks > 0 && rank >= 0 && rank < ranks, "rank"));
    std::vector<Handle> copies(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) {
      DUNLIN_TRY(check(handles[i] != nullptr, "handles"));
      Handle& copy = copies[static_cast<std::size_t>(i)];
      std::memcpy(copy.data(), handles[i], copy.size());
    }
    DUNLIN_ASSIGN(auto made,
                  Group::connect(static_cast<ListenComm*>(listener)->endpoint(), copies, rank));
    *group = made.release();
    return Status::ok();
  });
}

// All of NCCL's contexts, for which version 12 asks here, share one connection to each rank.
Result connect_v12(void* context, void* handles[], int ranks, int rank, int, int, void* listener,
                   void** group) {
  return connect(context, handles, ranks, rank, listener, group);
}

Result close_group(void* group) {
  return guarded([&] {
    if (group != nullptr)
      Plugin::instance().close(std::unique_ptr<Group>(static_cast<Group*>(group)));
    return Status::ok();
  });
}

// Kernels reach the plugin through NCCL's own queues, for which NCCL makes the device's part.
Result make_context(void* group, void** context, abi::DeviceHandle** device) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr && context != nullptr, "group"));
    *context = group;
    if (device != nullptr) *device = nullptr;
    return Status::ok();
  });
}

Result create_context_v11(void* group, int, int, void** context, abi::DeviceHandle** device) {
  return make_context(group, context, device);
}

Result create_context_v12(void* group, int, int, int, void** context, abi::DeviceHandle** device) {
  return make_context(group, context, device);
}

Result create_context_v13(void* group, abi::GinConfig*, void** context,
                          abi::DeviceHandle** device) {
  return make_context(group, context, device);
}

Result destroy_context(void*) {
  return abi::kSuccess;
}

// The flags ask for an order that all memory has here.
Result register_memory(void* group, void* data, std::size_t size, int type, std::uint64_t,
                       void** memory, void** device_memory) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr && memory != nullptr && device_memory != nullptr, "group"));
    *memory = *device_memory = nullptr;
    DUNLIN_ASSIGN(*memory, static_cast<Group*>(group)->add_window(data, size, driver_of(type)));
    *device_memory = *memory;
    return Status::ok();
  });
}

// NCCL does not call it, because the properties do not offer DMA-BUFs.
Result register_dma_buf(void*, void*, std::size_t, int, std::uint64_t, int, std::uint64_t,
                        void** memory, void** device_memory) {
  if (memory != nullptr) *memory = nullptr;
  if (device_memory != nullptr) *device_memory = nullptr;
  return guarded(
      [] { return Status(Code::kInvalidArgument, "the plugin does not register DMA-BUFs"); });
}

Result deregister(void* group, void* memory) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr, "group"));
    return static_cast<Group*>(group)->remove_window(memory);
  });
}

using End = Group::WindowOffset;

Result start_put(void* group, End from, std::size_t size, End to, std::uint32_t rank,
                 const std::optional<Group::Signal>& signal, void** request) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr && request != nullptr, "group"));
    *request = nullptr;
    DUNLIN_ASSIGN(*request,
                  static_cast<Group*>(group)->put(static_cast<int>(rank), from, to, size, signal));
    return Status::ok();
  });
}

Result put(void* group, End from, std::size_t size, End to, std::uint32_t rank, void** request) {
  return start_put(group, from, size, to, rank, std::nullopt, request);
}

Result put_signal(void* group, End from, std::size_t size, End to, std::uint32_t rank, End signal,
                  std::uint64_t value, std::uint32_t operation, void** request) {
  if (operation == abi::kSignalIncrement) value = 1;
  if (operation == abi::kSignalIncrement || operation == abi::kSignalAdd)
    return start_put(group, from, size, to, rank, Group::Signal{signal, value}, request);
  if (request != nullptr) *request = nullptr;
  return guarded([&] { return check(false, "operation of a signal"); });
}

Result put_v11(void* group, std::uint64_t from_offset, void* from, std::size_t size,
               std::uint64_t to_offset, void* to, std::uint32_t rank, void** request) {
  return put(group, {from, from_offset}, size, {to, to_offset}, rank, request);
}

Result put_v12(void* group, std::uint64_t from_offset, void* from, std::size_t size,
               std::uint64_t to_offset, void* to, std::uint32_t rank, int, void** request) {
  return put(group, {from, from_offset}, size, {to, to_offset}, rank, request);
}

Result put_v13(void* group, int, std::uint64_t from_offset, void* from, std::size_t size,
               std::uint64_t to_offset, void* to, std::uint32_t rank, void** request) {
  return put(group, {from, from_offset}, size, {to, to_offset}, rank, request);
}

Result put_signal_v11(void* group, std::uint64_t from_offset, void* from, std::size_t size,
                      std::uint64_t to_offset, void* to, std::uint32_t rank,
                      std::uint64_t signal_offset, void* signal, std::uint64_t value,
                      std::uint32_t operation, void** request) {
  return put_signal(group, {from, from_offset}, size, {to, to_offset}, rank,
                    {signal, signal_offset}, value, operation, request);
}

Result put_signal_v12(void* group, std::uint64_t from_offset, void* from, std::size_t size,
                      std::uint64_t to_offset, void* to, std::uint32_t rank,
                      std::uint64_t signal_offset, void* signal, std::uint64_t value,
                      std::uint32_t operation, int, void** request) {
  return put_signal(group, {from, from_offset}, size, {to, to_offset}, rank,
                    {signal, signal_offset}, value, operation, request);
}

Result put_signal_v13(void* group, int, std::uint64_t from_offset, void* from, std::size_t size,
                      std::uint64_t to_offset, void* to, std::uint32_t rank,
                      std::uint64_t signal_offset, void* signal, std::uint64_t value,
                      std::uint32_t operation, void** request) {
  return put_signal(group, {from, from_offset}, size, {to, to_offset}, rank,
                    {signal, signal_offset}, value, operation, request);
}

Result get(void* group, int, std::uint64_t from_offset, void* from, std::size_t size,
           std::uint64_t to_offset, void* to, std::uint32_t rank, void** request) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr && request != nullptr, "group"));
    *request = nullptr;
    DUNLIN_ASSIGN(*request,
                  static_cast<Group*>(group)->get(static_cast<int>(rank), {from, from_offset},
                                                  {to, to_offset}, size));
    return Status::ok();
  });
}

// A get is done only when the GPU can see its data. NCCL takes a null request for a flush that is
// done.
Result flush(void*, int, void*, std::uint32_t, void** request) {
  if (request != nullptr) *request = nullptr;
  return abi::kSuccess;
}

// As guarded(), for failures that have been logged, and for which NCCL may ask again and again.
Result quietly(auto&& body) {
  try {
    return code_of(body());
  } catch (const std::exception& error) {
    return report(Status(Code::kResourceExhausted, error.what()));
  }
}

Result test(void* group, void* request, int* is_done) {
  const Status valid =
      check(group != nullptr && request != nullptr && is_done != nullptr, "request");
  if (valid.is_error()) return report(valid);
  *is_done = 0;
  return quietly([&]() -> Status {
    DUNLIN_ASSIGN(const bool done,
                  static_cast<Group*>(group)->test(static_cast<Group::Transfer*>(request)));
    *is_done = done ? 1 : 0;
    return Status::ok();
  });
}

Result progress(void* group) {
  const Status valid = check(group != nullptr, "group");
  if (valid.is_error()) return report(valid);
  return quietly([&] { return static_cast<Group*>(group)->progress(); });
}

Result last_error(void* group, bool* has_error) {
  return guarded([&]() -> Status {
    DUNLIN_TRY(check(group != nullptr && has_error != nullptr, "group"));
    *has_error = static_cast<Group*>(group)->has_failed();
    return Status::ok();
  });
}

constexpr abi::GinV13 kTable13 = {.name = kName,
                                  .init = init,
                                  .devices = devices,
                                  .properties = properties<abi::PropertiesV12>,
                                  .listen = listen,
                                  .connect = connect,
                                  .create_context = create_context_v13,
                                  .register_memory = register_memory,
                                  .register_dma_buf = register_dma_buf,
                                  .deregister = deregister,
                                  .destroy_context = destroy_context,
                                  .close_group = close_group,
                                  .close_listen = close_listen,
                                  .put = put_v13,
                                  .put_signal = put_signal_v13,
                                  .get = get,
                                  .flush = flush,
                                  .test = test,
                                  .progress = progress,
                                  .last_error = last_error,
                                  .finalize = finalize};

}  // namespace

#define DUNLIN_NCCL_EXPORT extern "C" [[gnu::visibility("default")]] const

DUNLIN_NCCL_EXPORT abi::GinV11 ncclGinPlugin_v11 = {.name = kName,
                                                    .init = init,
                                                    .devices = devices,
                                                    .properties = properties<abi::PropertiesV11>,
                                                    .listen = listen,
                                                    .connect = connect,
                                                    .create_context = create_context_v11,
                                                    .register_memory = register_memory,
                                                    .register_dma_buf = register_dma_buf,
                                                    .deregister = deregister,
                                                    .destroy_context = destroy_context,
                                                    .close_group = close_group,
                                                    .close_listen = close_listen,
                                                    .put = put_v11,
                                                    .put_signal = put_signal_v11,
                                                    .test = test,
                                                    .progress = progress,
                                                    .last_error = last_error,
                                                    .finalize = finalize};

DUNLIN_NCCL_EXPORT abi::GinV12 ncclGinPlugin_v12 = {.name = kName,
                                                    .init = init,
                                                    .devices = devices,
                                                    .properties = properties<abi::PropertiesV11>,
                                                    .listen = listen,
                                                    .connect = connect_v12,
                                                    .create_context = create_context_v12,
                                                    .register_memory = register_memory,
                                                    .register_dma_buf = register_dma_buf,
                                                    .deregister = deregister,
                                                    .destroy_context = destroy_context,
                                                    .close_group = close_group,
                                                    .close_listen = close_listen,
                                                    .put = put_v12,
                                                    .put_signal = put_signal_v12,
                                                    .test = test,
                                                    .progress = progress,
                                                    .last_error = last_error,
                                                    .finalize = finalize};

DUNLIN_NCCL_EXPORT abi::GinV13 ncclGinPlugin_v13 = kTable13;
DUNLIN_NCCL_EXPORT abi::GinV13 ncclRmaPlugin_v13 = kTable13;

}  // namespace dunlin::nccl
