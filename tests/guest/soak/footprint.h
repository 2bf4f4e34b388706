// The resources that this process holds, to find leaks.
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

  // Measures now. Memory that was freed is given back to the kernel first.
  static Result<Footprint> take();
  std::string to_string() const;
};

// The differences that are tolerated between two measurements in the same state.
struct Slack {
  std::int64_t resident_kib = 0;
  std::int64_t mappings = 0;
};

// kResourceExhausted says what has grown.
Status check_growth(const Footprint& before, const Footprint& now, const Slack& slack);

}  // namespace dunlin::soak
