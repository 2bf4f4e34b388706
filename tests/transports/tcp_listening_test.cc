// When the tcp transport listens: only once a peer needs it. And where: only where it faces the
// peer.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <thread>

#include "tests/support/listening_sockets.h"
#include "tests/support/ranks.h"
#include "transports/tcp/address.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;

// Both ranks are threads of this process. Returns how many sockets listen while they communicate.
int listening_while_connected(bool are_on_one_host, const std::string& used) {
  InProcessJob job(2);
  int listening = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Config config = Config::parse(Environment()).value();
      config.transports = {"shm", "tcp"};
      config.tcp_interface = "lo";
      if (!are_on_one_host) config.host_id = "host " + std::to_string(rank);
      const SteadyClock clock;
      const auto bootstrap = job.bootstrap(Rank(rank));
      auto fabric = Fabric::create(*bootstrap, config, clock).value();
      Exposed memory(*fabric, "listening", 4096, 1);
      EXPECT_EQ(fabric->transport_of(Rank(1 - rank)), used);
      EXPECT_EQ(fabric->transport_of(Rank(rank)), "shm");
      EXPECT_TRUE(complete(*fabric, [&](Completion* done) {
                    return memory.data(1 - rank).put(memory.local().whole(),
                                                     memory.at(1 - rank).whole(), done);
                  }).is_ok());
      sync(*fabric, "connected");
      if (rank == 0) listening = count_listening_sockets();
      sync(*fabric, "counted");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return listening;
}

transport::tcp::Address address_of(const std::string& host,
                                   std::initializer_list<const char*> endpoints) {
  transport::tcp::Address made;
  made.host = host;
  for (const char* const text : endpoints) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
    made.endpoints.emplace_back(reinterpret_cast<const sockaddr*>(&address));
  }
  return made;
}

TEST(TcpListening, AProcessFacesItsPeerOnly) {
  const auto here = address_of("one", {"10.1.2.3", "192.168.7.7", "127.0.0.1"});
  const auto twin = address_of("one", {"10.1.2.3", "192.168.7.7", "127.0.0.1"});
  EXPECT_EQ(here.facing(twin), address_of("", {"127.0.0.1"}).endpoints);
  // They have been told that they are on two hosts, and take no loopback.
  const auto told = address_of("two", {"10.1.2.3", "192.168.7.7", "127.0.0.1"});
  EXPECT_EQ(here.facing(told), address_of("", {"10.1.2.3", "192.168.7.7"}).endpoints);
  const auto lonely = address_of("one", {"127.0.0.1"});
  EXPECT_EQ(lonely.facing(address_of("two", {"127.0.0.1"})), lonely.endpoints);
  // Nothing here leads to a peer that has a loopback, and whose only other address is also one of
  // this host, as private networks have on every host.
  EXPECT_TRUE(here.facing(address_of("two", {"10.1.2.3", "127.0.0.9"})).empty());
}

TEST(TcpListening, AJobOnOneHostDoesNotListen) {
  ASSERT_EQ(count_listening_sockets(), 0);
  EXPECT_EQ(listening_while_connected(true, "shm"), 0);
}

TEST(TcpListening, RanksOfTwoHostsListenForEachOther) {
  EXPECT_GE(listening_while_connected(false, "tcp"), 2);
  EXPECT_EQ(count_listening_sockets(), 0) << "they are closed with their fabrics";
}

}  // namespace
}  // namespace dunlin::testing
