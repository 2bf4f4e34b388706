// An outage of the network in the middle of transfers. The commands NCCL_TEST_LINK_DOWN and
// NCCL_TEST_LINK_UP make it; tests/guest/verbs.sh has some. Without them, the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tests/bindings/nccl/ranks.h"

namespace dunlin::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlock = std::size_t{256} << 10;
constexpr std::size_t kInFlight = 8;
constexpr std::chrono::seconds kOutage{2};

// Makes the outage in a thread of its own.
class Outage {
 public:
  Outage(const char* link_down, const char* link_up)
      : thread_([this, link_down, link_up] {
          REQUIRE(std::system(link_down) == 0);
          std::this_thread::sleep_for(kOutage);
          REQUIRE(std::system(link_up) == 0);
          is_over_ = true;
        }) {}
  ~Outage() { thread_.join(); }
  bool is_over() const { return is_over_; }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// Sends numbered blocks, the outage among them, and empty ones at the end.
void send(Rank& rank, const char* link_down, const char* link_up) {
  void* const comm = rank.connect(0);
  Block memory(kBlock * kInFlight);
  void* const registered = rank.add(comm, memory.data(), memory.size());
  std::deque<void*> requests;
  std::unique_ptr<Outage> outage;
  const auto send_one = [&](std::size_t number, std::size_t size) {
    if (requests.size() == kInFlight) {
      rank.wait(requests.front());
      requests.pop_front();
    }
    unsigned char* const at = memory.data() + number % kInFlight * kBlock;
    if (size != 0) std::ranges::copy(pattern(kBlock, number), at);
    requests.push_back(rank.send(comm, at, size, 0, registered));
  };
  std::size_t number = 0;
  for (std::size_t afterwards = 0; afterwards < 5 * kInFlight; ++number) {
    send_one(number, kBlock);
    if (number == 3 * kInFlight) outage = std::make_unique<Outage>(link_down, link_up);
    if (outage != nullptr && outage->is_over()) ++afterwards;
  }
  for (std::size_t i = 0; i < kInFlight; ++i) send_one(number++, 0);
  for (void* const request : requests) rank.wait(request);
  REQUIRE(has_logged("is back after"));
  REQUIRE(rank.plugin.common().close_send(comm) == abi::kSuccess);
}

// Receives them until one is empty: each once, in order, and whole.
void receive(Rank& rank) {
  void* listener = nullptr;
  rank.listen(&listener);
  void* const comm = rank.accept(listener);
  Block memory(kBlock * kInFlight);
  void* const registered = rank.add(comm, memory.data(), memory.size());
  std::deque<void*> requests;
  const auto place_of = [&](std::size_t number) {
    return memory.data() + number % kInFlight * kBlock;
  };
  std::size_t number = 0;
  const auto post = [&](std::size_t which) {
    requests.push_back(rank.receive(comm, place_of(which), kBlock, 0, registered));
  };
  while (requests.size() < kInFlight) post(requests.size());
  Clock::duration longest{};
  for (auto last = Clock::now();; ++number) {
    const int size = rank.wait(requests.front());
    requests.pop_front();
    longest = std::max(longest, Clock::now() - last);
    last = Clock::now();
    if (size == 0) break;
    REQUIRE(size == static_cast<int>(kBlock));
    REQUIRE(std::ranges::equal(pattern(kBlock, number), std::span(place_of(number), kBlock)));
    post(number + kInFlight);
  }
  for (void* const request : requests) REQUIRE(rank.wait(request) == 0);
  const double gap = std::chrono::duration<double>(longest).count();
  std::printf("%zu blocks of 256 KiB arrived; the longest gap was %.1f s\n", number, gap);
  std::fflush(stdout);
  REQUIRE(longest > kOutage / 2);
  REQUIRE(rank.plugin.common().close_receive(comm) == abi::kSuccess);
  REQUIRE(rank.plugin.common().close_listen(listener) == abi::kSuccess);
}

TEST(NcclOutage, TransfersGoOnExactlyOnceInOrder) {
  const char* const link_down = std::getenv("NCCL_TEST_LINK_DOWN");
  const char* const link_up = std::getenv("NCCL_TEST_LINK_UP");
  if (link_down == nullptr || link_up == nullptr)
    GTEST_SKIP() << "needs a network that can fail: NCCL_TEST_LINK_DOWN, NCCL_TEST_LINK_UP";
  EXPECT_EQ("", run(2, 11, "verbs", [&](Rank& rank) {
              if (rank.number == 0) {
                receive(rank);
              } else {
                send(rank, link_down, link_up);
              }
            }));
}

}  // namespace
}  // namespace dunlin::testing
