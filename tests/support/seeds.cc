#include "tests/support/seeds.h"

#include <algorithm>
#include <cstdlib>

namespace dunlin::testing {

std::uint64_t seeds(std::uint64_t usual) {
  const char* const text = std::getenv("TEST_SEEDS");
  const std::uint64_t times = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kShare = 10;
#else
  constexpr std::uint64_t kShare = 1;
#endif
  return std::max<std::uint64_t>(1, usual * times / kShare);
}

}  // namespace dunlin::testing
