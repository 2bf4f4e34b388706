// Counts the ports that a process has open.
#pragma once

namespace dunlin::testing {

// How many sockets of this process listen for TCP connections.
int count_listening_sockets();

}  // namespace dunlin::testing
