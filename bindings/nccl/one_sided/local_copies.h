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
  // two windows of the host's memory, it is over when the call returns. An error is final.
  Status begin(const Window& to, std::size_t to_offset, const Window& from, std::size_t from_offset,
               std::size_t size);
  // kBusy until the copy that was begun is over.
  Status poll();
  // Whether a copy that is not over uses the window's memory.
  bool is_using(const Window& window) const;

 private:
  Result<GpuStream*> stream_of(const Window& window);
  Status start(const Window& to, std::size_t to_offset, const Window& from, std::size_t from_offset,
               std::size_t size);

  std::map<std::pair<std::shared_ptr<GpuDriver>, int>, std::unique_ptr<GpuStream>> streams_;
  // These three describe a copy that is not over.
  GpuStream* current_ = nullptr;
  const Window* from_ = nullptr;
  const Window* to_ = nullptr;
  Status failure_;
};

}  // namespace dunlin::nccl
