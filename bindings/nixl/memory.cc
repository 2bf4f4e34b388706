#include "bindings/nixl/memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "runtime/bytes.h"

namespace dunlin::nixl {
namespace {

constexpr std::uint32_t kMagic = 0x4d4e4c44;  // "DLNM" in memory

}  // namespace

std::string LocalMemory::describe() const {
  const Bytes bytes = ByteWriter()
                          .number(kMagic)
                          .number(static_cast<std::uint64_t>(id))
                          .number(std::uint64_t{reinterpret_cast<std::uintptr_t>(base)})
                          .number(std::uint64_t{size})
                          .take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<RemoteMemory> RemoteMemory::parse(std::string_view description, const std::string& agent) {
  ByteReader reader(as_bytes(description));
  const auto magic = reader.number<std::uint32_t>();
  RemoteMemory memory;
  memory.agent = agent;
  memory.id = transport::MemoryId(reader.number<std::uint64_t>());
  const auto base = reader.number<std::uint64_t>();
  memory.base = reinterpret_cast<std::byte*>(base);
  memory.size = reader.number<std::uint64_t>();
  const bool ends_within = memory.size <= std::numeric_limits<std::uint64_t>::max() - base;
  if (reader.at_end() && magic == kMagic && ends_within) return memory;
  return Status(Code::kCorrupted,
                fmt::format("the {} bytes that describe memory of agent '{}' do not come from "
                            "Dunlin, or from another version",
                            description.size(), agent));
}

}  // namespace dunlin::nixl
