// Ports for tests whose programs have to be told where to listen, as ports.py has them for Python.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <random>

#include "runtime/fd.h"

namespace dunlin::testing {

// A port that is free on the loopback interface. It lies below those that Linux gives to sockets
// that have asked for none, which could take it at any time.
inline std::uint16_t free_port() {
  std::random_device random;
  std::uniform_int_distribution<std::uint16_t> ports(20'000, 31'999);
  for (;;) {
    const std::uint16_t port = ports(random);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return port;
  }
}

}  // namespace dunlin::testing
