// LocalCopies: copies within this process, between windows of the host's and of GPUs' memory. One
// thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "bindings/nccl/one_sided/window.h"
#include "runtime/gpu/driver.h"
#include "runtime/status.h"

namespace dunlin::nccl {

class LocalCopies {
 public:
  // Begins to copy `size` bytes, which lie within the windows. The last copy must be over. Between
  // two windows of the host's memory, it is over when the call returns.
  Status begin(const Window& to, std::size_t to_offset, const Window& from, std::size_t from_offset,
               std::size_t size);
  // kBusy until the copy that was begun is over.
  Status poll();

 private:
  Result<GpuStream*> stream_of(const Window& window);

  std::map<std::pair<GpuDriver*, int>, std::unique_ptr<GpuStream>> streams_;
  GpuStream* current_ = nullptr;  // of a copy that is not over
};

}  // namespace dunlin::nccl
