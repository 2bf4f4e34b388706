// The limit on locked memory. Registering memory with a network device locks it.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dunlin {

// With a lower limit, registration is likely to fail sooner or later: models and receive slots add
// up, and some devices lock their queues too.
inline constexpr std::size_t kEnoughLockedMemory = std::size_t{1} << 30;

// The limit in bytes (`ulimit -l`). It is nullopt when there is no limit, or when the calling
// thread has the capability CAP_IPC_LOCK of the host; root of a container or of a user namespace
// may lack it.
std::optional<std::size_t> locked_memory_limit();

// How to raise a limit that is too low, for error messages.
std::string_view locked_memory_remedy();

}  // namespace dunlin
