// What the files of the stand-in share of its state (driver.cc).
#pragma once

#include <cstdint>
#include <cstdlib>

#include "tests/fake_cuda/ranges.h"

namespace dunlin::testing {

// The number in a variable of the environment, or `otherwise` if it is not set.
inline std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Counts a call of the program. Returns the code that it fails with.
cuda::Code fake_enter(const char* name);
FakeRanges& fake_ranges();

}  // namespace dunlin::testing
