// How many seeds a simulation goes through.
#pragma once

#include <cstdint>

namespace dunlin::testing {

// `usual`, times TEST_SEEDS of the environment when that is set (tools/check sets it to 0.25 for
// --quick, to 10 for --all), and a tenth of that under a sanitizer, which makes each seed take
// about ten times as long. At least one.
std::uint64_t seeds(std::uint64_t usual);

}  // namespace dunlin::testing
