// The paths of build outputs and of the real data sets, for tests.
#pragma once

#include <string>

namespace dunlin::testing {

// The path of a build output, such as built("tests/programs/bootstrap_probe"). The build directory
// is the one that contains the running test program.
std::string built(const std::string& path);
// The path of a program of tools/, such as program("dunlin-run").
std::string program(const std::string& name);

// The path of a real data set in the folder TEST_DATA_DIRECTORY, an environment variable that
// `meson test` sets. When the file is missing, the test is to be skipped.
std::string data_set(const std::string& name);

}  // namespace dunlin::testing
