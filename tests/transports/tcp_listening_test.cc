// When the tcp transport listens: only once a peer needs it.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;

// The inodes of all TCP sockets of this network namespace that listen.
std::set<std::string> listening_inodes() {
  std::set<std::string> inodes;
  for (const char* const name : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(name);
    std::string line;
    std::getline(table, line);  // the headings
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string word[10];
      for (std::string& it : word) words >> it;
      if (word[3] == "0A") inodes.insert(word[9]);
    }
  }
  return inodes;
}

// Those of them that this process has open.
std::size_t listening_sockets() {
  const std::set<std::string> inodes = listening_inodes();
  std::size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(folder)) {
    char target[64] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string name = target;
    if (name.starts_with("socket:[") && inodes.contains(name.substr(8, name.size() - 9))) ++count;
  }
  closedir(folder);
  return count;
}

// Both ranks are threads of this process. Returns how many sockets listen while they communicate.
std::size_t listening_while_connected(bool are_on_one_host, const std::string& used) {
  InProcessJob job(2);
  std::size_t listening = 0;
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
      if (rank == 0) listening = listening_sockets();
      sync(*fabric, "counted");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return listening;
}

TEST(TcpListening, AJobOnOneHostDoesNotListen) {
  ASSERT_EQ(listening_sockets(), 0u);
  EXPECT_EQ(listening_while_connected(true, "shm"), 0u);
}

TEST(TcpListening, RanksOfTwoHostsListenForEachOther) {
  EXPECT_GE(listening_while_connected(false, "tcp"), 2u);
  EXPECT_EQ(listening_sockets(), 0u) << "they are closed with their fabrics";
}

}  // namespace
}  // namespace dunlin::testing
