// The version of the library.
#pragma once

namespace dunlin {

// MAJOR.MINOR.PATCH, such as "0.2.0": that of the library which the program runs with.
const char* version();

}  // namespace dunlin
