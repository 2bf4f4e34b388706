// How much memory this process may lock, which is what registering it with a device does.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dunlin {

// With less, registering is likely to fail at some time: models and receive slots add up, and some
// devices also lock their queues.
inline constexpr std::size_t kEnoughLockedMemory = std::size_t{1} << 30;

// In bytes (`ulimit -l`); nothing where there is no limit, which is so, too, for a thread that has
// the host's CAP_IPC_LOCK. A container's or a user namespace's own root may lack that.
std::optional<std::size_t> locked_memory_limit();

// What to do about a limit that is too low.
std::string_view locked_memory_remedy();

}  // namespace dunlin
