#include "runtime/bootstrap/net.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>

namespace dunlin::bootstrap {
namespace {

// Listens at a port of the loopback interface. Returns 0, or errno.
int listen_at(std::uint16_t port, bool reuses_address) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int reuse = reuses_address ? 1 : 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return errno;
  return listen(socket.get(), 1) == 0 ? 0 : errno;
}

TEST(HeldPort, IsForThoseWhoNameItAndReuseAddresses) {
  Endpoint endpoint{"127.0.0.1", 0};
  {
    const Fd held = hold_port(endpoint).value();
    ASSERT_NE(endpoint.port, 0);
    EXPECT_EQ(listen_at(endpoint.port, false), EADDRINUSE);
    EXPECT_EQ(listen_at(endpoint.port, true), 0);
    Endpoint again = endpoint;
    EXPECT_TRUE(listen_on(again).is_ok());
  }
  EXPECT_EQ(listen_at(endpoint.port, false), 0);
}

}  // namespace
}  // namespace dunlin::bootstrap
