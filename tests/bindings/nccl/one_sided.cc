#include "tests/bindings/nccl/one_sided.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>

namespace dunlin::testing {
namespace {

template <typename Properties>
auto describing(abi::Result (*function)(int, Properties*)) {
  return [function](int device, int* pointers, int* type) {
    Properties properties;
    const abi::Result result = function(device, &properties);
    if (result == abi::kSuccess) {
      *pointers = properties.pointer_support;
      *type = properties.device_type;
    }
    return result;
  };
}

}  // namespace

OneSidedCalls::OneSidedCalls(int version, bool is_rma) {
  void* const library = dlopen(DUNLIN_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  const std::string symbol =
      (is_rma ? "ncclRmaPlugin_v" : "ncclGinPlugin_v") + std::to_string(version);
  void* const found = library == nullptr ? nullptr : dlsym(library, symbol.c_str());
  require(found != nullptr, symbol.c_str(), __LINE__);
  const auto take = [this](const auto& table) {
    init = table.init;
    devices = table.devices;
    properties = describing(table.properties);
    listen = table.listen;
    register_memory = table.register_memory;
    register_dma_buf = table.register_dma_buf;
    deregister = table.deregister;
    close_group = table.close_group;
    close_listen = table.close_listen;
    destroy_context = table.destroy_context;
    test = table.test;
    progress = table.progress;
    last_error = table.last_error;
    finalize = table.finalize;
  };
  if (version == 11) {
    const auto& table = *static_cast<const abi::GinV11*>(found);
    take(table);
    connect = [&](void* handles[], int ranks, int rank, void* listener, void** group) {
      return table.connect(nullptr, handles, ranks, rank, listener, group);
    };
    create_context = [&](void* group, void** context) {
      abi::DeviceHandle* device = nullptr;
      return table.create_context(group, 1, 1, context, &device);
    };
    put = table.put;
    put_signal = table.put_signal;
  } else if (version == 12) {
    const auto& table = *static_cast<const abi::GinV12*>(found);
    take(table);
    connect = [&](void* handles[], int ranks, int rank, void* listener, void** group) {
      return table.connect(nullptr, handles, ranks, rank, 1, 0, listener, group);
    };
    create_context = [&](void* group, void** context) {
      abi::DeviceHandle* device = nullptr;
      return table.create_context(group, 1, 1, 1, context, &device);
    };
    put = [&](void* group, std::uint64_t from_offset, void* from, std::size_t size,
              std::uint64_t to_offset, void* to, std::uint32_t rank, void** request) {
      return table.put(group, from_offset, from, size, to_offset, to, rank, 0, request);
    };
    put_signal = [&](void* group, std::uint64_t from_offset, void* from, std::size_t size,
                     std::uint64_t to_offset, void* to, std::uint32_t rank,
                     std::uint64_t signal_offset, void* signal, std::uint64_t value,
                     std::uint32_t operation, void** request) {
      return table.put_signal(group, from_offset, from, size, to_offset, to, rank, signal_offset,
                              signal, value, operation, 0, request);
    };
  } else {
    const auto& table = *static_cast<const abi::GinV13*>(found);
    take(table);
    connect = [&](void* handles[], int ranks, int rank, void* listener, void** group) {
      return table.connect(nullptr, handles, ranks, rank, listener, group);
    };
    create_context = [&](void* group, void** context) {
      abi::GinConfig config{1, 1, 1, 0, -1};
      abi::DeviceHandle* device = nullptr;
      return table.create_context(group, &config, context, &device);
    };
    put = [&](void* context, std::uint64_t from_offset, void* from, std::size_t size,
              std::uint64_t to_offset, void* to, std::uint32_t rank, void** request) {
      return table.put(context, 0, from_offset, from, size, to_offset, to, rank, request);
    };
    put_signal = [&](void* context, std::uint64_t from_offset, void* from, std::size_t size,
                     std::uint64_t to_offset, void* to, std::uint32_t rank,
                     std::uint64_t signal_offset, void* signal, std::uint64_t value,
                     std::uint32_t operation, void** request) {
      return table.put_signal(context, 0, from_offset, from, size, to_offset, to, rank,
                              signal_offset, signal, value, operation, request);
    };
    get = table.get;
    flush = table.flush;
  }
}

Member::Member(Rank& from, int version, bool is_rma) : rank(from), calls(version, is_rma) {
  REQUIRE(calls.init(&init_context, 1, logger()) == abi::kSuccess);
  void* listener = nullptr;
  char handle[abi::kHandleBytes];
  REQUIRE(calls.listen(init_context, 0, handle, &listener) == abi::kSuccess);
  std::copy(std::begin(handle), std::end(handle), rank.board.handle[rank.number]);
  rank.sync();
  std::vector<void*> handles;
  for (int i = 0; i < rank.size; ++i) handles.push_back(rank.board.handle[i]);
  REQUIRE(calls.connect(handles.data(), rank.size, rank.number, listener, &group) == abi::kSuccess);
  // NCCL closes it as soon as the group is connected.
  REQUIRE(calls.close_listen(listener) == abi::kSuccess);
  REQUIRE(calls.create_context(group, &context) == abi::kSuccess);
}

void* Member::add(void* data, std::size_t size, int type) {
  void* memory = nullptr;
  void* device_memory = nullptr;
  REQUIRE(calls.register_memory(group, data, size, type, 1, &memory, &device_memory) ==
          abi::kSuccess);
  REQUIRE(memory != nullptr && device_memory != nullptr);
  return device_memory;
}

void* Member::put(int to, At from, At there, std::size_t size) {
  void* request = nullptr;
  REQUIRE(calls.put(context, from.offset, from.memory, size, there.offset, there.memory,
                    static_cast<std::uint32_t>(to), &request) == abi::kSuccess);
  REQUIRE(request != nullptr);
  return request;
}

void* Member::put_signal(int to, At from, At there, std::size_t size, At signal,
                         std::uint64_t value, std::uint32_t operation) {
  void* request = nullptr;
  REQUIRE(calls.put_signal(context, from.offset, from.memory, size, there.offset, there.memory,
                           static_cast<std::uint32_t>(to), signal.offset, signal.memory, value,
                           operation, &request) == abi::kSuccess);
  REQUIRE(request != nullptr);
  return request;
}

void* Member::get(int from, At there, At here, std::size_t size) {
  void* request = nullptr;
  REQUIRE(calls.get(context, 0, there.offset, there.memory, size, here.offset, here.memory,
                    static_cast<std::uint32_t>(from), &request) == abi::kSuccess);
  REQUIRE(request != nullptr);
  return request;
}

bool Member::is_done(void* request) {
  int done = 0;
  REQUIRE(calls.test(group, request, &done) == abi::kSuccess);
  return done != 0;
}

void Member::wait(void* request) {
  advance_until([&] { return is_done(request); }, "a transfer");
}

void Member::advance_until(const std::function<bool()>& ready, const char* what) {
  until(
      [&] {
        REQUIRE(calls.progress(context) == abi::kSuccess);
        return ready();
      },
      what);
}

bool Member::has_failed() {
  bool failed = false;
  REQUIRE(calls.last_error(context, &failed) == abi::kSuccess);
  return failed;
}

void Member::close() {
  REQUIRE(calls.destroy_context(context) == abi::kSuccess);
  REQUIRE(calls.close_group(group) == abi::kSuccess);
  REQUIRE(calls.finalize(init_context) == abi::kSuccess);
}

}  // namespace dunlin::testing
