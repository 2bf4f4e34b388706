#include "tests/bindings/nccl/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace dunlin::testing {
namespace {

// Calls `use` with the table of this version.
template <typename Use>
auto with_table(int version, void* table, Use&& use) {
  switch (version) {
    case 8:
      return use(*static_cast<abi::NetV8*>(table));
    case 9:
      return use(*static_cast<abi::NetV9*>(table));
    case 10:
      return use(*static_cast<abi::NetV10*>(table));
    default:
      return use(*static_cast<abi::NetV11*>(table));
  }
}

// The table's type of properties.
template <typename Table>
struct PropertiesOf;
template <typename Properties>
struct PropertiesOf<abi::Result (*)(int, Properties*)> {
  using Type = Properties;
};

template <typename Use>
abi::Result with_properties(int version, void* table, int device, Use&& use) {
  return with_table(version, table, [&](auto& found) {
    typename PropertiesOf<decltype(found.properties)>::Type properties;
    const abi::Result result = found.properties(device, &properties);
    if (result == abi::kSuccess) use(properties);
    return result;
  });
}

}  // namespace

Plugin::Plugin(const char* path, int version) : version_(version) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
  if (library != nullptr) table_ = dlsym(library, symbol.c_str());
  if (table_ == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  with_table(version, table_, [&](auto& table) {
    common_.accept = table.accept;
    common_.register_memory = table.register_memory;
    common_.register_dma_buf = table.register_dma_buf;
    common_.deregister = table.deregister;
    common_.flush = table.flush;
    common_.test = table.test;
    common_.close_send = table.close_send;
    common_.close_receive = table.close_receive;
    common_.close_listen = table.close_listen;
    common_.devices = table.devices;
    common_.name = table.name;
  });
}

abi::Result Plugin::init(abi::Logger logger) {
  if (version_ == 10) return static_cast<abi::NetV10*>(table_)->init(logger, nullptr);
  if (version_ == 11) {
    abi::CommConfig config{-1};
    return static_cast<abi::NetV11*>(table_)->init(&context_, 1, &config, logger, nullptr);
  }
  if (version_ == 9) return static_cast<abi::NetV9*>(table_)->init(logger);
  return static_cast<abi::NetV8*>(table_)->init(logger);
}

abi::Result Plugin::devices(int* count) {
  return common_.devices(count);
}

abi::Result Plugin::properties(int device, std::string* name, int* max_receives) {
  return with_properties(version_, table_, device, [&](const auto& found) {
    *name = found.name;
    *max_receives = found.max_receives;
  });
}

int Plugin::pointer_support(int device) {
  int support = 0;
  with_properties(version_, table_, device,
                  [&](const auto& found) { support = found.pointer_support; });
  return support;
}

abi::Result Plugin::listen(void* handle, void** listener) {
  if (version_ == 11)
    return static_cast<abi::NetV11*>(table_)->listen(context_, device_, handle, listener);
  if (version_ == 10) return static_cast<abi::NetV10*>(table_)->listen(device_, handle, listener);
  if (version_ == 9) return static_cast<abi::NetV9*>(table_)->listen(device_, handle, listener);
  return static_cast<abi::NetV8*>(table_)->listen(device_, handle, listener);
}

abi::Result Plugin::connect(void* handle, void** sender) {
  abi::DeviceHandle* offload = nullptr;
  abi::CommConfig config{-1};
  if (version_ == 11)
    return static_cast<abi::NetV11*>(table_)->connect(context_, device_, handle, sender, &offload);
  if (version_ == 10)
    return static_cast<abi::NetV10*>(table_)->connect(device_, &config, handle, sender, &offload);
  if (version_ == 9)
    return static_cast<abi::NetV9*>(table_)->connect(device_, handle, sender, &offload);
  return static_cast<abi::NetV8*>(table_)->connect(device_, handle, sender, &offload);
}

abi::Result Plugin::send(void* sender, void* data, std::size_t size, int tag, void* memory,
                         void** request) {
  if (version_ >= 10) {
    // Versions 10 and 11 have the function at the same place.
    return static_cast<abi::NetV10*>(table_)->send(sender, data, size, tag, memory, nullptr,
                                                   request);
  }
  if (version_ == 9)
    return static_cast<abi::NetV9*>(table_)->send(sender, data, size, tag, memory, request);
  return static_cast<abi::NetV8*>(table_)->send(sender, data, static_cast<int>(size), tag, memory,
                                                request);
}

abi::Result Plugin::receive(void* receiver, int count, void** data, std::size_t* sizes, int* tags,
                            void** memories, void** request) {
  if (version_ >= 10) {
    return static_cast<abi::NetV10*>(table_)->receive(receiver, count, data, sizes, tags, memories,
                                                      nullptr, request);
  }
  if (version_ == 9) {
    return static_cast<abi::NetV9*>(table_)->receive(receiver, count, data, sizes, tags, memories,
                                                     request);
  }
  int small[64];
  std::copy_n(sizes, count, small);
  return static_cast<abi::NetV8*>(table_)->receive(receiver, count, data, small, tags, memories,
                                                   request);
}

abi::Result Plugin::finalize() {
  return version_ == 11 ? static_cast<abi::NetV11*>(table_)->finalize(context_) : abi::kSuccess;
}

}  // namespace dunlin::testing
