// How many seeds a simulation goes through.
#pragma once

#include <cstdint>

namespace dunlin::testing {

// `usual`, times TEST_SEEDS of the environment when that is set (tools/check sets it to 0.25 for
// --quick, to 10 for --all), and a tenth of that under a sanitizer, which makes each seed take
// about ten times as long. At least one.
std::uint64_t seeds(std::uint64_t usual);

// Whether a test that went through `done` seeds may say how often something happens in them: they
// were all of seeds(usual), none of them chosen, and at least a tenth of `usual`, since something
// rare need not happen in fewer.
bool are_representative(std::uint64_t done, std::uint64_t usual);

}  // namespace dunlin::testing
