// Connections whose program makes no calls for long, or whose lane has failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/ranks.h"
#include "transports/completion.h"
#include "transports/endpoint/constants.h"
#include "transports/endpoint/endpoint.h"
#include "transports/endpoint/keeper.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Connection;
using transport::Endpoint;
using transport::MemoryId;

Duration time_limit() {
  return std::chrono::seconds(30) * timeout_factor();
}

struct End {
  explicit End(const std::string& transport)
      : config(Config::parse(Environment({{"DUNLIN_TRANSPORTS", transport}})).value()),
        endpoint(Endpoint::create(config, clock, {.is_host_only = true}).value()) {}
  Status wait_until(const std::function<bool()>& done) {
    return endpoint->wait([&] { return done() ? Status::ok() : Status::busy(); }, time_limit());
  }
  const Config config;
  const SteadyClock clock;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Connection> connection;
};

// Accepts a connection at `a`, which somebody makes.
[[nodiscard]] Status accept(End& a) {
  return a.wait_until([&] {
    if (a.connection == nullptr) a.connection = a.endpoint->accept();
    return a.connection != nullptr && !a.connection->status().is_busy();
  });
}

class Keeping : public ::testing::TestWithParam<std::string> {};

TEST_P(Keeping, WhatWaitsArrivesThoughTheSenderCallsNothing) {
  End reader(GetParam());
  End sender(GetParam());
  sender.connection = sender.endpoint->connect(reader.endpoint->blob(), {}).value();
  std::mutex lock;
  constexpr int kMessages = 4 * transport::endpoint::kDepth;
  {
    const std::lock_guard guard(lock);
    const TimePoint limit = sender.clock.now() + time_limit();
    while (sender.connection->status().is_busy() && sender.clock.now() < limit) {
      sender.endpoint->progress();
      reader.endpoint->progress();
      if (reader.connection == nullptr) reader.connection = reader.endpoint->accept();
    }
    ASSERT_TRUE(sender.connection->status().is_ok()) << sender.connection->status().to_string();
    for (int i = 0; i < kMessages; ++i) {
      const std::byte number{static_cast<unsigned char>(i)};
      ASSERT_TRUE(sender.connection->send(std::span(&number, 1)).is_ok());
    }
    // The peer has read none, so that there is room for as many as there are slots.
    ASSERT_FALSE(sender.connection->has_sent_all());
  }
  const auto keeper =
      transport::endpoint::Keeper::start(lock, [&] { sender.endpoint->progress(); }).value();
  int received = 0;
  const Status status = reader.wait_until([&] {
    while (auto message = reader.connection->receive()) {
      EXPECT_EQ(std::to_integer<int>(message->front()), received);
      ++received;
    }
    return received == kMessages;
  });
  EXPECT_TRUE(status.is_ok()) << status.to_string() << " after " << received << " messages";
  std::thread ending([&] { reader.connection.reset(); });
  {
    const std::lock_guard guard(lock);
    sender.connection.reset();
  }
  ending.join();
}

INSTANTIATE_TEST_SUITE_P(, Keeping, ::testing::Values("shm", "tcp"),
                         [](const auto& each) { return each.param; });

// A process that connects, tells the number of its memory, and makes progress until it is killed.
// The memory is its own, so that peers access it by system calls.
class MemoryPeer {
 public:
  explicit MemoryPeer(const Bytes& blob) : pid_(fork()) {
    if (pid_ != 0) return;
    End end("shm");
    std::vector<std::byte> memory(kSize);
    const MemoryId id =
        end.endpoint->register_memory(MemoryRegion::wrap(memory.data(), memory.size()).value())
            .value();
    end.connection = end.endpoint->connect(blob, {}).value();
    (void)end.wait_until([&] { return !end.connection->status().is_busy(); });
    (void)end.connection->send(as_bytes(id));
    for (;;) end.endpoint->progress();
  }
  ~MemoryPeer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  static constexpr std::size_t kSize = 64 << 10;

 private:
  static std::span<const std::byte> as_bytes(const MemoryId& id) {
    return std::as_bytes(std::span(&id, 1));
  }
  pid_t pid_;
};

TEST(EndpointLane, AFailureEndsTheConnection) {
  void* const pages =
      mmap(nullptr, MemoryPeer::kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  End a("shm");
  const MemoryId own =
      a.endpoint->register_memory(MemoryRegion::wrap(pages, MemoryPeer::kSize).value()).value();
  // Puts all of the own memory, and returns the outcome.
  const auto put = [&]() -> Status {
    std::optional<Bytes> told;
    DUNLIN_TRY(a.wait_until([&] { return (told = a.connection->receive()).has_value(); }));
    MemoryId id{};
    std::memcpy(&id, told->data(), sizeof id);
    transport::RemoteRegion* region = nullptr;
    DUNLIN_TRY(a.wait_until([&] {
      const auto found = a.connection->remote(id);
      if (found) region = *found;
      return region != nullptr;
    }));
    Completion done;
    DUNLIN_ASSIGN(const auto from, a.connection->local(own, 0, MemoryPeer::kSize));
    DUNLIN_ASSIGN(const auto to, region->slice(0, MemoryPeer::kSize));
    DUNLIN_TRY(a.connection->lane().put(from, to, &done));
    DUNLIN_TRY(a.wait_until([&] { return done.is_done(); }));
    return done.status();
  };

  {
    const MemoryPeer peer(a.endpoint->blob());
    ASSERT_TRUE(accept(a).is_ok());
    if (a.connection->transport() != "shm") GTEST_SKIP() << "processes share no memory here";
    munmap(static_cast<std::byte*>(pages) + MemoryPeer::kSize / 2, MemoryPeer::kSize / 2);
    EXPECT_TRUE(put().is_error());
    EXPECT_TRUE(a.wait_until([&] { return a.connection->status().is_error(); }).is_ok());
    a.connection.reset();
  }
  ASSERT_EQ(mmap(pages, MemoryPeer::kSize, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            pages);
  const MemoryPeer peer(a.endpoint->blob());
  ASSERT_TRUE(accept(a).is_ok());
  const Status again = put();
  EXPECT_TRUE(again.is_ok()) << again.to_string();
  a.connection.reset();
  munmap(pages, MemoryPeer::kSize);
}

}  // namespace
}  // namespace dunlin::testing
