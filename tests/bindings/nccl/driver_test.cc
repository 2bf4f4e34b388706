// The plugin, called as NCCL calls it, under each of its versions: the ranks are processes, and
// connect on one thread while another one transfers.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/bindings/nccl/ranks.h"

namespace dunlin::testing {
namespace {

class NcclOver : public ::testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  std::string run_here(int size, const std::function<void(Rank&)>& body,
                       const std::vector<int>& killed = {}) {
    return run(size, std::get<0>(GetParam()), std::get<1>(GetParam()), body, killed);
  }
};

TEST_P(NcclOver, TransfersAllSizes) {
  EXPECT_EQ("", run_here(2, [](Rank& rank) {
              Pair pair(rank);
              const std::vector<std::size_t> sizes = {
                  0, 1, 8, 4095, 65'536, 1'000'003, std::size_t{4} << 20};
              Block block(sizes.back());
              void* const memory = rank.add(pair.comm, block.data(), block.size());
              std::thread transfers([&] {
                for (const std::size_t size : sizes) {
                  if (pair.is_receiver()) {
                    // A buffer may be larger than what is sent.
                    const std::size_t room = std::min(size + 10, block.size());
                    void* const request = rank.receive(pair.comm, block.data(), room, 7, memory);
                    REQUIRE(rank.wait(request) == static_cast<int>(size));
                    const Block expected = pattern(size, size % 256);
                    REQUIRE(std::equal(expected.begin(), expected.end(), block.begin()));
                  } else {
                    const Block sent = pattern(size, size % 256);
                    std::copy(sent.begin(), sent.end(), block.begin());
                    REQUIRE(rank.wait(rank.send(pair.comm, block.data(), size, 7, memory)) ==
                            static_cast<int>(size));
                  }
                }
              });
              // Meanwhile, the other thread registers other memory.
              Block other(10'000);
              for (int i = 0; i < 50; ++i) {
                void* const extra = rank.add(pair.comm, other.data(), other.size());
                REQUIRE(rank.plugin.common().deregister(pair.comm, extra) == abi::kSuccess);
              }
              transfers.join();
              REQUIRE(rank.plugin.common().deregister(pair.comm, memory) == abi::kSuccess);
              pair.close();
            }));
}

TEST_P(NcclOver, ManyGroupsWithTagsAreInFlight) {
  EXPECT_EQ("", run_here(2, [](Rank& rank) {
              Pair pair(rank);
              constexpr int kGroups = abi::kMaxRequests, kGroup = 8;
              constexpr std::size_t kSize = 1000;
              Block block(kGroups * kGroup * kSize);
              void* memory = rank.add(pair.comm, block.data(), block.size());
              const auto at = [&](int group, int tag) {
                return block.data() + (group * kGroup + tag) * kSize;
              };
              std::vector<void*> requests;
              if (pair.is_receiver()) {
                for (int group = 0; group < kGroups; ++group) {
                  void* data[kGroup];
                  void* memories[kGroup];
                  std::size_t sizes[kGroup];
                  int tags[kGroup];
                  for (int i = 0; i < kGroup; ++i) {
                    data[i] = at(group, i), memories[i] = memory, sizes[i] = kSize, tags[i] = i;
                  }
                  void* request = nullptr;
                  until(
                      [&] {
                        REQUIRE(rank.plugin.receive(pair.comm, kGroup, data, sizes, tags, memories,
                                                    &request) == abi::kSuccess);
                        return request != nullptr;
                      },
                      "a grouped receive");
                  requests.push_back(request);
                }
                for (int group = 0; group < kGroups; ++group) {
                  int sizes[kGroup] = {};
                  rank.wait(requests[static_cast<std::size_t>(group)], sizes);
                  for (int i = 0; i < kGroup; ++i) {
                    REQUIRE(sizes[i] == static_cast<int>(kSize) - i);
                    const Block expected = pattern(kSize - i, group * kGroup + i);
                    REQUIRE(std::equal(expected.begin(), expected.end(), at(group, i)));
                  }
                }
              } else {
                for (int group = 0; group < kGroups; ++group) {
                  // Tags choose the buffer, in any order.
                  for (int i = kGroup - 1; i >= 0; --i) {
                    const Block sent = pattern(kSize - i, group * kGroup + i);
                    std::copy(sent.begin(), sent.end(), at(group, i));
                    requests.push_back(rank.send(pair.comm, at(group, i), sent.size(), i, memory));
                  }
                }
                for (void* const request : requests) rank.wait(request);
              }
              pair.close();
            }));
}

// NCCL makes no calls any more once its requests are done.
TEST_P(NcclOver, ASenderWhoseSendsAreDoneNeedsNoMoreCalls) {
  EXPECT_EQ("", run_here(2, [](Rank& rank) {
              Pair pair(rank);
              constexpr int kMessages = abi::kMaxRequests;
              constexpr std::size_t kSize = 4096;
              Block block(kMessages * kSize);
              void* const memory = rank.add(pair.comm, block.data(), block.size());
              std::vector<void*> requests;
              for (int i = 0; i < kMessages; ++i) {
                unsigned char* const at = block.data() + i * kSize;
                requests.push_back(pair.is_receiver()
                                       ? rank.receive(pair.comm, at, kSize, i, memory)
                                       : rank.send(pair.comm, at, kSize, i, memory));
              }
              // The sender's last call. Then the receiver begins to look.
              if (!pair.is_receiver())
                for (void* const request : requests) rank.wait(request);
              rank.sync();
              if (pair.is_receiver())
                for (void* const request : requests) rank.wait(request);
              rank.sync();
              pair.close();
            }));
}

TEST_P(NcclOver, ARingOfFour) {
  EXPECT_EQ(
      "", run_here(4, [](Rank& rank) {
        void* listener = nullptr;
        rank.listen(&listener);
        rank.sync();
        // In turn, as NCCL does: none of the ranks would accept if each waited for its own
        // connection.
        void* sender = nullptr;
        void* receiver = nullptr;
        until(
            [&] {
              abi::DeviceHandle* offload = nullptr;
              char* const handle = rank.board.handle[(rank.number + 1) % rank.size];
              if (sender == nullptr) REQUIRE(rank.plugin.connect(handle, &sender) == abi::kSuccess);
              if (receiver == nullptr)
                REQUIRE(rank.plugin.common().accept(listener, &receiver, &offload) ==
                        abi::kSuccess);
              return sender != nullptr && receiver != nullptr;
            },
            "connecting the ring");
        REQUIRE(rank.plugin.common().close_listen(listener) == abi::kSuccess);
        Block out = pattern(30'000, rank.number), in(30'000);
        void* const out_memory = rank.add(sender, out.data(), out.size());
        void* const in_memory = rank.add(receiver, in.data(), in.size());
        for (int round = 0; round < rank.size; ++round) {
          void* const received = rank.receive(receiver, in.data(), in.size(), 0, in_memory);
          // In turn, as NCCL does: a receiver that is not tested does not answer its peer.
          void* sent = nullptr;
          bool has_received = false;
          until(
              [&] {
                int done = 0;
                if (!has_received)
                  REQUIRE(rank.plugin.common().test(received, &done, nullptr) == abi::kSuccess);
                has_received |= done != 0;
                if (sent == nullptr) {
                  REQUIRE(rank.plugin.send(sender, out.data(), out.size(), 0, out_memory, &sent) ==
                          abi::kSuccess);
                }
                return has_received && sent != nullptr;
              },
              "a step of the ring");
          rank.wait(sent);
          out = in;
        }
        REQUIRE(out == pattern(30'000, rank.number));
        REQUIRE(rank.plugin.common().close_send(sender) == abi::kSuccess);
        REQUIRE(rank.plugin.common().close_receive(receiver) == abi::kSuccess);
      }));
}

TEST_P(NcclOver, AListenerIsReused) {
  EXPECT_EQ("", run_here(2, [](Rank& rank) {
              void* listener = nullptr;
              if (rank.number == 0) rank.listen(&listener);
              for (int i = 0; i < 3; ++i) {
                int value = 0;
                void* const comm = rank.number == 0 ? rank.accept(listener) : rank.connect(0);
                void* const memory = rank.add(comm, &value, sizeof value);
                if (rank.number == 0) {
                  rank.wait(rank.receive(comm, &value, sizeof value, 1, memory));
                  REQUIRE(value == i + 1);
                  REQUIRE(rank.plugin.common().close_receive(comm) == abi::kSuccess);
                } else {
                  value = i + 1;
                  rank.wait(rank.send(comm, &value, sizeof value, 1, memory));
                  REQUIRE(rank.plugin.common().close_send(comm) == abi::kSuccess);
                }
              }
              if (listener != nullptr)
                REQUIRE(rank.plugin.common().close_listen(listener) == abi::kSuccess);
            }));
}

TEST_P(NcclOver, ADeathEndsWhatIsInFlight) {
  EXPECT_EQ("", run_here(2,
                         [](Rank& rank) {
                           Pair pair(rank);
                           Block block(1000);
                           void* const memory = rank.add(pair.comm, block.data(), block.size());
                           void* request = nullptr;
                           if (pair.is_receiver())
                             request =
                                 rank.receive(pair.comm, block.data(), block.size(), 0, memory);
                           rank.sync();
                           if (!pair.is_receiver()) raise(SIGKILL);
                           REQUIRE(rank.wait_for_error(request) == abi::kRemoteError);
                           REQUIRE(warnings() > 0);
                           pair.close();
                         },
                         {1}));
}

TEST_P(NcclOver, ADeathOfTheReceiverEndsSends) {
  EXPECT_EQ("", run_here(2,
                         [](Rank& rank) {
                           Pair pair(rank);
                           constexpr std::size_t kSize = std::size_t{4} << 20;
                           Block block(kSize);
                           void* const memory = rank.add(pair.comm, block.data(), kSize);
                           if (pair.is_receiver()) {
                             for (int i = 0; i < 16; ++i)
                               rank.receive(pair.comm, block.data(), kSize, i, memory);
                             rank.sync();
                             raise(SIGKILL);
                           }
                           rank.sync();
                           // Some may be done. Sooner or later one isn't, or can't begin.
                           int tag = 0;
                           abi::Result result = abi::kSuccess;
                           until(
                               [&] {
                                 void* request = nullptr;
                                 result = rank.plugin.send(pair.comm, block.data(), kSize, tag,
                                                           memory, &request);
                                 int done = request == nullptr ? 1 : 0, size = 0;
                                 while (result == abi::kSuccess && done == 0)
                                   result = rank.plugin.common().test(request, &done, &size);
                                 if (request != nullptr) ++tag;
                                 return result != abi::kSuccess;
                               },
                               "a send that fails");
                           REQUIRE(result == abi::kRemoteError);
                           pair.close();
                         },
                         {0}));
}

TEST_P(NcclOver, BothEndsCloseWhileSendsAreInFlight) {
  EXPECT_EQ("", run_here(2, [](Rank& rank) {
              Pair pair(rank);
              constexpr int kMessages = 8;
              constexpr std::size_t kSize = std::size_t{4} << 20;
              Block block(kSize);
              void* const memory = rank.add(pair.comm, block.data(), kSize);
              if (pair.is_receiver())
                for (int i = 0; i < kMessages; ++i)
                  rank.receive(pair.comm, block.data(), kSize, i, memory);
              rank.sync();
              if (!pair.is_receiver())
                for (int i = 0; i < kMessages; ++i)
                  rank.send(pair.comm, block.data(), kSize, i, memory);
              rank.sync();
              pair.close();
            }));
}

TEST_P(NcclOver, AnEndEndsThePeersRequests) {
  EXPECT_EQ("", run_here(2, [](Rank& rank) {
              Pair pair(rank);
              Block block(100'000);
              void* const memory = rank.add(pair.comm, block.data(), block.size());
              if (pair.is_receiver()) {
                void* const request =
                    rank.receive(pair.comm, block.data(), block.size(), 0, memory);
                rank.sync();
                REQUIRE(rank.wait_for_error(request) == abi::kRemoteError);
              } else {
                rank.sync();
              }
              // The sender closes while the receive is in flight.
              pair.close();
            }));
}

TEST_P(NcclOver, ErrorsAreReported) {
  EXPECT_EQ(
      "", run_here(2, [](Rank& rank) {
        Pair pair(rank);
        const auto& calls = rank.plugin.common();
        Block block(1000), other(1000);
        void* const memory = rank.add(pair.comm, block.data(), block.size());
        void* request = &request;
        void* data = other.data();
        std::size_t size = 10;
        int tag = 0;
        void* of = memory;
        void* none = nullptr;
        // Memory that is not registered, and bytes outside of it.
        const auto call = [&](void* what, void* with) {
          return pair.is_receiver()
                     ? rank.plugin.receive(pair.comm, 1, &what, &size, &tag, &with, &request)
                     : rank.plugin.send(pair.comm, what, size, tag, with, &request);
        };
        REQUIRE(call(data, of) == abi::kInvalidArgument);
        REQUIRE(call(data, none) == abi::kInvalidArgument && request == nullptr);
        REQUIRE(calls.register_memory(pair.comm, data, 10, 2, &none) == abi::kInvalidArgument);
        REQUIRE(calls.register_dma_buf(pair.comm, data, 10, 2, 0, 3, &none) ==
                abi::kInvalidArgument);
        REQUIRE(calls.deregister(pair.comm, &request) == abi::kInvalidArgument);
        // Garbage instead of a handle.
        char garbage[abi::kHandleBytes];
        for (const int fill : {0, 1, 60, 255}) {
          std::memset(garbage, fill, sizeof garbage);
          void* comm = nullptr;
          REQUIRE(rank.plugin.connect(garbage, &comm) == abi::kInvalidArgument && comm == nullptr);
        }
        // The buffer of the receiver is too small.
        if (pair.is_receiver()) {
          request = rank.receive(pair.comm, block.data(), 10, 5, memory);
          REQUIRE(rank.wait_for_error(request) == abi::kRemoteError);
        } else {
          abi::Result result = abi::kSuccess;
          until(
              [&] {
                result = rank.plugin.send(pair.comm, block.data(), 11, 5, memory, &request);
                return result != abi::kSuccess;
              },
              "a send that is too large");
          REQUIRE(result == abi::kInvalidArgument);
        }
        rank.sync();
        REQUIRE(warnings() > 0);
        pair.close();
      }));
}

TEST_P(NcclOver, WrongArgumentsAreRefused) {
  EXPECT_EQ(
      "", run_here(2, [](Rank& rank) {
        Pair pair(rank);
        const auto& calls = rank.plugin.common();
        Block block(1000);
        void* memory = rank.add(pair.comm, block.data(), block.size());
        void* const data = block.data();
        void* request = nullptr;
        REQUIRE(rank.plugin.send(nullptr, data, 1, 0, memory, &request) == abi::kInvalidArgument);
        REQUIRE(rank.plugin.send(pair.comm, data, 1, 0, memory, nullptr) == abi::kInvalidArgument);
        REQUIRE(rank.plugin.send(pair.comm, data, (std::size_t{1} << 30) + 1, 0, memory,
                                 &request) == abi::kInvalidArgument);
        void* datas[9] = {};
        void* memories[9] = {};
        std::size_t sizes[9] = {};
        int tags[9] = {};
        for (const int count : {-1, 0, 9}) {
          request = &request;
          REQUIRE(rank.plugin.receive(pair.comm, count, datas, sizes, tags, memories, &request) ==
                  abi::kInvalidArgument);
          REQUIRE(request == nullptr);
        }
        REQUIRE(rank.plugin.receive(nullptr, 1, datas, sizes, tags, memories, &request) ==
                abi::kInvalidArgument);
        int done = 0, size = 0;
        REQUIRE(calls.test(nullptr, &done, &size) == abi::kInvalidArgument);
        REQUIRE(calls.register_memory(pair.comm, nullptr, 10, 1, &memory) == abi::kInvalidArgument);
        REQUIRE(calls.register_memory(pair.comm, data, 0, 1, &memory) == abi::kInvalidArgument);
        REQUIRE(rank.plugin.connect(nullptr, &request) == abi::kInvalidArgument);
        rank.sync();
        pair.close();
      }));
}

// The one that NCCL_TEST_TRANSPORT names, which may need devices.
std::vector<std::string> transports() {
  const char* const name = std::getenv("NCCL_TEST_TRANSPORT");
  if (name != nullptr) return {name};
  return {"shm", "tcp"};
}

INSTANTIATE_TEST_SUITE_P(, NcclOver,
                         ::testing::Combine(::testing::Values(8, 9, 10, 11),
                                            ::testing::ValuesIn(transports())),
                         [](const auto& each) {
                           return "v" + std::to_string(std::get<0>(each.param)) + "_" +
                                  std::get<1>(each.param);
                         });

// Threads that have returned count no more, although /proc may still list them.
bool is_ending_a_connection() {
  constexpr unsigned long kIsExiting = 4;  // PF_EXITING
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(task.path() / "stat"), line);
    if (line.find("(dunlin-close)") == std::string::npos) continue;
    // Behind the name: the state, five numbers, and the flags.
    std::istringstream rest(line.substr(line.rfind(')') + 1));
    std::string skipped;
    unsigned long flags = 0;
    for (int i = 0; i < 6; ++i) rest >> skipped;
    rest >> flags;
    if ((flags & kIsExiting) == 0) return true;
  }
  return false;
}

// A thread that has used OpenSSL must not end while OpenSSL frees what it has. Version 9 has no
// finalize(), which would wait.
TEST(Nccl, ConnectionsEndBeforeOpenSslDoes) {
  EXPECT_EQ("", run(3, 9, "tcp", [](Rank& rank) {
              constexpr int kSender = 1, kReceiver = 0;
              if (rank.number == 2) {  // the sender waits for the receiver when it ends
                rank.sync();
                rank.sync();
                until([&] { return rank.board.step[kSender] == 3; }, "the sender's end");
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                rank.send_signal(kReceiver, SIGCONT);
                return;
              }
              Pair pair(rank);
              Block block(std::size_t{64} << 20);
              void* const memory = rank.add(pair.comm, block.data(), block.size());
              if (pair.is_receiver()) {
                rank.receive(pair.comm, block.data(), block.size(), 0, memory);
                rank.sync();
                rank.sync();
                raise(SIGSTOP);
              } else {
                // Linked into the plugin: when that is built without it, nothing is to be shown.
                void* const openssl = dlopen("libcrypto.so.3", RTLD_LAZY | RTLD_NOLOAD);
                if (openssl != nullptr) {
                  using AtExit = int (*)(void (*)());
                  reinterpret_cast<AtExit>(dlsym(openssl, "OPENSSL_atexit"))(
                      [] { REQUIRE(!is_ending_a_connection()); });
                }
                // All ranks have started: most of it is still to be sent when the receiver stops.
                rank.sync();
                rank.send(pair.comm, block.data(), block.size(), 0, memory);
                rank.sync();
                rank.await_stopped(kReceiver);
              }
              pair.close();
              if (pair.is_receiver()) return;
              REQUIRE(is_ending_a_connection());
              ++rank.board.step[kSender];
            }));
}

TEST(Nccl, DescribesItsDevices) {
  for (const int version : {8, 9, 10, 11}) {
    EXPECT_EQ("", run(1, version, "tcp,shm", [](Rank& rank) {
                int count = 0, most = 0;
                std::string name;
                REQUIRE(rank.plugin.devices(&count) == abi::kSuccess && count == 2);
                REQUIRE(rank.plugin.properties(1, &name, &most) == abi::kSuccess);
                REQUIRE(name == "shm" && most == 8);
                REQUIRE(rank.plugin.properties(2, &name, &most) == abi::kInvalidArgument);
              }));
  }
}

}  // namespace
}  // namespace dunlin::testing
