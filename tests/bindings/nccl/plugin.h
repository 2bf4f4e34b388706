// Plugin: calls the plugin as NCCL does, under one of its versions. Each function returns NCCL's
// code.
#pragma once

#include <string>

#include "bindings/nccl/abi.h"

namespace dunlin::testing {

namespace abi = nccl::abi;

class Plugin {
 public:
  // Loads the library. `version`: 8 to 11. Ends the process if it cannot.
  Plugin(const char* path, int version);

  abi::Result init(abi::Logger logger);
  // Listens and connects on this device; before that, on device 0.
  void use(int device) { device_ = device; }
  abi::Result devices(int* count);
  // The name, and the number of grouped receives.
  abi::Result properties(int device, std::string* name, int* max_receives);
  // The kinds of memory that the device says it reaches.
  int pointer_support(int device);
  abi::Result listen(void* handle, void** listener);
  abi::Result connect(void* handle, void** sender);
  abi::Result send(void* sender, void* data, std::size_t size, int tag, void* memory,
                   void** request);
  abi::Result receive(void* receiver, int count, void** data, std::size_t* sizes, int* tags,
                      void** memories, void** request);
  abi::Result finalize();
  // The functions that are the same in all versions.
  const abi::NetV8& common() const { return common_; }

 private:
  const int version_;
  int device_ = 0;
  void* table_ = nullptr;
  void* context_ = nullptr;
  abi::NetV8 common_{};
};

}  // namespace dunlin::testing
