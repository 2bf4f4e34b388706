// The memory of agents: what this one has registered, and what others have described to it. NIXL
// carries the descriptions from agent to agent, as bytes that it does not read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/status.h"
#include "transports/endpoint/connection.h"

namespace dunlin::nixl {

// Memory of this agent.
struct LocalMemory {
  transport::MemoryId id{};
  std::byte* base = nullptr;
  std::size_t size = 0;

  // What peers need to know of it.
  std::string describe() const;
};

// Memory of another agent.
struct RemoteMemory {
  std::string agent;
  transport::MemoryId id{};
  std::byte* base = nullptr;  // at the peer
  std::size_t size = 0;

  // kCorrupted if the text does not come from describe().
  static Result<RemoteMemory> parse(std::string_view description, const std::string& agent);
};

}  // namespace dunlin::nixl
