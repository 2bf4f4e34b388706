// The ucx transport with puts that must not land, with peers that make no progress, and with peers
// that shut down.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::RemoteRegion;
using transport::Visibility;

constexpr std::size_t kRegion = 1 << 20;
// Too large to travel within its message, so the receiver fetches it.
constexpr std::size_t kFetched = 600'000;

void run(const RankBody& body) {
  RunOptions options;
  options.configure = [](Config& config) {
    config.transports = {"ucx"};
    config.ucx_rma = RmaMode::kOff;
  };
  run_ranks(options, body);
}

// Puts `size` bytes at the end of the remote region with a notification. Returns the operation's
// own outcome.
Status put_at_end(Fabric& fabric, Exposed& memory, RemoteRegion& to, std::size_t size,
                  std::uint64_t sequence) {
  return complete(fabric, [&](Completion* completion) {
    return memory.data(1).put_notify(memory.local().slice(0, size).value(),
                                     to.slice(to.size() - size, size).value(),
                                     notification(memory.cell_at(1, 0), sequence), completion);
  });
}

Status flush(Fabric& fabric, Exposed& memory) {
  return complete(fabric, [&](Completion* completion) {
    return memory.data(1).flush(Visibility::kRemote, completion);
  });
}

// A small put is refused after its buffer was released, so the next remote flush reports that,
// once. For a fetched put, its own completion reports it. Neither is announced to the peer, and the
// lane continues.
void expect_refusals(Fabric& fabric, Exposed& memory, RemoteRegion& forged, Code code) {
  if (fabric.rank() == Rank(0)) {
    const Status small = put_at_end(fabric, memory, forged, 64, 1);
    const Status flushed = flush(fabric, memory);
    EXPECT_EQ(small.is_ok() ? flushed.code() : small.code(), code)
        << small.to_string() << flushed.to_string();
    EXPECT_TRUE(flush(fabric, memory).is_ok());
    EXPECT_EQ(put_at_end(fabric, memory, forged, kFetched, 2).code(), code);
    EXPECT_TRUE(put_at_end(fabric, memory, memory.at(1), kFetched, 3).is_ok());
    EXPECT_TRUE(flush(fabric, memory).is_ok());
  } else {
    ASSERT_TRUE(progress_until(fabric, [&] {
      const std::uint64_t seen = fabric.board().sequence(memory.cell(0));
      EXPECT_TRUE(seen == 0 || seen == 3) << seen;
      return seen == 3;
    }));
  }
  sync(fabric, "refused");
}

TEST(UcxFaultTest, ForgedRegionsAreRefused) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "forged", kRegion, 1);
    auto gone = fabric.allocate(kRegion).value();
    const Bytes descriptor = gone->descriptor();
    gone.reset();
    // No link has been told yet, as if the message were still in flight.
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(fabric.bootstrap().publish("gone", descriptor).is_ok());
    }
    auto forged = fabric.import_region(
        Rank(1),
        fabric.bootstrap().lookup("gone", std::chrono::seconds(10) * timeout_factor()).value());
    ASSERT_TRUE(forged.is_ok());
    expect_refusals(fabric, memory, **forged, Code::kNotFound);
  });
}

TEST(UcxFaultTest, PutsBeyondTheRegionsEndAreRefused) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "bounds", kRegion, 1);
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(fabric.bootstrap().publish("true", memory.local().descriptor()).is_ok());
    }
    // The descriptor begins with the region's size. This doubles it.
    Bytes descriptor =
        fabric.bootstrap().lookup("true", std::chrono::seconds(10) * timeout_factor()).value();
    const std::uint64_t size = 2 * kRegion;
    std::memcpy(descriptor.data(), &size, sizeof size);
    auto forged = fabric.import_region(Rank(1), descriptor);
    ASSERT_TRUE(forged.is_ok());
    expect_refusals(fabric, memory, **forged, Code::kOutOfRange);
  });
}

TEST(UcxFaultTest, MalformedDescriptorsAndAddressesAreErrors) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "malformed", 4096, 1);
    Bytes descriptor = memory.local().descriptor();
    descriptor.resize(descriptor.size() - 3);
    EXPECT_EQ(fabric.import_region(fabric.rank(), descriptor).status().code(), Code::kCorrupted);
    sync(fabric, "looked");
  });
}

// The peer makes no progress at all. close() must return with every completion fired, and the peer
// must not take it for this rank's death.
TEST(UcxFaultTest, CloseEndsWithAPeerThatIsStuck) {
  std::promise<void> closed;
  run([&closed](Fabric& fabric) {
    Exposed memory(fabric, "stuck", kRegion, 1);
    if (fabric.rank() == Rank(0)) {
      std::vector<Completion> completions(20);
      for (Completion& completion : completions) {
        ASSERT_TRUE(
            memory.data(1).put(memory.local().whole(), memory.at(1).whole(), &completion).is_ok());
      }
      const TimePoint began = fabric.clock().now();
      memory.data(1).close();
      EXPECT_LT(to_seconds(fabric.clock().now() - began), 5.0 * timeout_factor());
      for (const Completion& completion : completions) {
        ASSERT_TRUE(completion.is_done());
        EXPECT_TRUE(completion.status().is_ok() || completion.status().code() == Code::kClosed)
            << completion.status().to_string();
      }
      EXPECT_EQ(completions.back().status().code(), Code::kClosed);
      closed.set_value();
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.link(1).control().notify(notification(memory.cell_at(1, 0), 1),
                                                           nullptr);
                  }).is_ok());
    } else {
      // Does not wait through the bootstrap, whose waits make progress.
      ASSERT_EQ(closed.get_future().wait_for(std::chrono::seconds(20) * timeout_factor()),
                std::future_status::ready);
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
      EXPECT_EQ(fabric.peers().state(Rank(0)), PeerState::kAlive)
          << fabric.peers().describe(Rank(0));
    }
    sync(fabric, "closed and seen");
  });
}

// A fabric that is destroyed announces that it closes: its peer's lanes end, but no rank counts as
// dead.
TEST(UcxFaultTest, AGoodbyeIsNoDeath) {
  InProcessJob job(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Config config = Config::parse(Environment()).value();
      config.transports = {"ucx"};
      const SteadyClock clock;
      const auto bootstrap = job.bootstrap(Rank(rank));
      auto fabric = Fabric::create(*bootstrap, config, clock).value();
      {
        Exposed memory(*fabric, "parting", 4096, 1);
        if (rank == 1) {
          Status status = Status::ok();
          ASSERT_TRUE(progress_until(*fabric, [&] {
            status = memory.data(0).notify(notification(memory.cell_at(0, 0), 1), nullptr);
            return status.is_error();
          }));
          EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
          EXPECT_EQ(bootstrap->peers().state(Rank(0)), PeerState::kAlive);
          ASSERT_TRUE(bootstrap->publish("seen", {}).is_ok());
        }
      }
      fabric.reset();
      // Stays in the job, because this does not test leaving it.
      EXPECT_TRUE(bootstrap->lookup("seen", std::chrono::seconds(20) * timeout_factor()).is_ok());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace dunlin::testing
