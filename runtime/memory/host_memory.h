// How much memory this host has.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace dunlin {

// In bytes. Any thread.
inline std::size_t host_memory_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace dunlin
