// The ports at which this process listens.
#pragma once

#include <string>
#include <vector>

namespace dunlin::testing {

// How many sockets of this process listen for TCP connections.
int count_listening_sockets();

// The address of each, as the kernel writes it in /proc/net/tcp and tcp6: kListensAtLoopback for
// 127.0.0.1.
std::vector<std::string> listening_addresses();
inline constexpr const char* kListensAtLoopback = "0100007F";

}  // namespace dunlin::testing
