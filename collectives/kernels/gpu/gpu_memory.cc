#include "collectives/kernels/gpu/gpu_memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace dunlin::collective {

Status check_gpu_memory(GpuDriver& driver, int device, std::string_view what, const void* data,
                        std::size_t size, DataType type, std::string_view user) {
  const auto refused = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, fmt::format("the {} of {} bytes {}: {} memory of GPU {}",
                                                      what, size, why, user, device));
  };
  auto found = driver.find(data);
  if (!found) return std::move(found).status().with_context(what);
  if (!found->has_value())
    return refused("is in host memory (cuPointerGetAttribute does not know it)");
  const GpuAllocation& memory = **found;
  if (memory.device != device) return refused(fmt::format("is on GPU {}", memory.device));
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - memory.base);
  if (size > memory.size - offset) return refused("leaves its allocation");
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(type) != 0)
    return refused(fmt::format("is not aligned to {}", to_string(type)));
  return Status::ok();
}

}  // namespace dunlin::collective
