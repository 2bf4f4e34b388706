#include "tests/support/seeds.h"

#include <algorithm>
#include <cstdlib>

namespace dunlin::testing {

std::uint64_t seeds(std::uint64_t usual) {
  const char* const text = std::getenv("TEST_SEEDS");
  const double times = text == nullptr ? 1 : std::strtod(text, nullptr);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double kShare = 10;
#else
  constexpr double kShare = 1;
#endif
  const double count = static_cast<double>(usual) * times / kShare;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(count));
}

bool are_representative(std::uint64_t done, std::uint64_t usual) {
  return done >= seeds(usual) && done >= usual / 10;
}

}  // namespace dunlin::testing
