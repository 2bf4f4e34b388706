// What this process holds of the machine, to find out whether it holds on to things.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/status.h"

namespace dunlin::soak {

struct Footprint {
  std::int64_t descriptors = 0;
  std::int64_t threads = 0;
  std::int64_t mappings = 0;
  std::int64_t resident_kib = 0;
  std::int64_t pinned_kib = 0;  // by devices

  // Of now; memory that was freed is given back to the kernel first.
  static Result<Footprint> take();
  std::string to_string() const;
};

// How much may differ between two moments at which the same is in use.
struct Slack {
  std::int64_t resident_kib = 0;
  std::int64_t mappings = 0;
};

// kResourceExhausted says what has grown.
Status check_growth(const Footprint& before, const Footprint& now, const Slack& slack);

}  // namespace dunlin::soak
