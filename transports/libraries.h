// load_libraries(): what must be loaded first so that connections can be used until a process ends.
#pragma once

namespace dunlin::transport {

// Loads the libraries of transports that free their state at the end of the process (OpenSSL's
// libcrypto). Connections may be used in what is registered with std::atexit after this call, and
// by destructors of static objects that are made after it: both run before that state is freed.
void load_libraries();

}  // namespace dunlin::transport
