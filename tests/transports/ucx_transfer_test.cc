// Tests of the ucx transport beyond the conformance suite: its three ways for bytes (within a
// message, fetched, RMA) mixed, its bounded queue, and memory that it must not write to later.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::Visibility;

class UcxTransferTest : public ::testing::TestWithParam<RmaMode> {
 protected:
  void run(const RankBody& body, std::int64_t queue_depth = 128) {
    RunOptions options;
    options.configure = [queue_depth](Config& config) {
      config.transports = {"ucx"};
      config.ucx_rma = GetParam();
      config.ucx_queue_depth = queue_depth;
    };
    run_ranks(options, body);
  }
};

TEST_P(UcxTransferTest, SizesAcrossAllPathsArriveWholeAndFlushed) {
  run([](Fabric& fabric) {
    constexpr std::size_t kLargest = 8 << 20;
    Exposed memory(fabric, "sizes", kLargest, 1);
    std::uint64_t sequence = 0;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{40}, std::size_t{4096}, std::size_t{64} << 10,
          std::size_t{256} << 10, (std::size_t{256} << 10) + 1, std::size_t{1} << 20, kLargest}) {
      ++sequence;
      if (fabric.rank() == Rank(0)) {
        fill(memory.local().memory()->bytes().first(size), sequence);
        Completion put;
        Completion flushed;
        const auto from = memory.local().slice(0, size).value();
        const auto to = memory.at(1).slice(0, size).value();
        ASSERT_TRUE(post(fabric, [&] { return memory.data(1).put(from, to, &put); }).is_ok());
        ASSERT_TRUE(post(fabric, [&] {
                      return memory.data(1).flush(Visibility::kRemote, &flushed);
                    }).is_ok());
        ASSERT_TRUE(progress_until(fabric, [&] { return put.is_done() && flushed.is_done(); }))
            << size;
        EXPECT_TRUE(flushed.status().is_ok()) << flushed.status().to_string();
        ASSERT_TRUE(post(fabric, [&] {
                      return memory.data(1).notify(notification(memory.cell_at(1, 0), sequence),
                                                   nullptr);
                    }).is_ok());
      } else {
        ASSERT_TRUE(await_cell(fabric, memory.cell(0), sequence)) << size;
        EXPECT_TRUE(is_filled(memory.local().memory()->bytes().first(size), sequence)) << size;
      }
      sync(fabric, "size " + std::to_string(sequence));
    }
  });
}

// One message in sixteen is large enough to be fetched. The messages behind it must not overtake
// it.
TEST_P(UcxTransferTest, SmallMessagesDoNotOvertakeLargeOnes) {
  run([](Fabric& fabric) {
    constexpr std::uint64_t kMessages = 10'000;
    constexpr std::uint64_t kSlots = 16;
    constexpr std::size_t kSlot = 300'000;
    constexpr std::array<std::size_t, 5> kSmall = {8, 40, 700, 9000, 20'000};
    const auto size_of = [&](std::uint64_t message) {
      return message % 16 == 3 ? kSlot : kSmall[message % kSmall.size()];
    };
    Exposed memory(fabric, "order", kSlots * kSlot, 2);
    if (fabric.rank() == Rank(0)) {
      for (std::uint64_t message = 0; message < kMessages; ++message) {
        // The receiver has checked what this slot held before, so this buffer is free, too.
        if (message >= kSlots) {
          ASSERT_TRUE(await_cell(fabric, memory.cell(1), message - kSlots + 1));
        }
        const std::size_t offset = message % kSlots * kSlot;
        const std::size_t size = size_of(message);
        fill(memory.local().memory()->bytes().subspan(offset, size), message);
        ASSERT_TRUE(post(fabric, [&] {
                      return memory.data(1).put_notify(
                          memory.local().slice(offset, size).value(),
                          memory.at(1).slice(offset, size).value(),
                          notification(memory.cell_at(1, 0), message + 1), nullptr);
                    }).is_ok());
      }
      ASSERT_TRUE(await_cell(fabric, memory.cell(1), kMessages));
      return;
    }
    std::uint64_t checked = 0;
    std::uint64_t last_seen = 0;
    while (checked < kMessages) {
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), checked + 1)) << checked;
      const std::uint64_t seen = fabric.board().sequence(memory.cell(0));
      ASSERT_GE(seen, last_seen);
      last_seen = seen;
      for (; checked < seen; ++checked) {
        const std::size_t offset = checked % kSlots * kSlot;
        ASSERT_TRUE(
            is_filled(memory.local().memory()->bytes().subspan(offset, size_of(checked)), checked))
            << "message " << checked;
      }
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.link(0).control().notify(
                        notification(memory.cell_at(0, 1), checked), nullptr);
                  }).is_ok());
    }
  });
}

TEST_P(UcxTransferTest, AQueueOfTwoIsBusyAndLosesNothing) {
  run(
      [](Fabric& fabric) {
        constexpr std::size_t kPuts = 200;
        constexpr std::size_t kSize = 300'000;  // fetched or RMA: pending until the peer takes part
        Exposed memory(fabric, "busy", 4 * kSize, 2);
        if (fabric.rank() == Rank(0)) {
          std::vector<Completion> completions(kPuts);
          for (std::size_t i = 0; i < kPuts; ++i) {
            const auto part = [&](auto& region) {
              return region.slice(i % 4 * kSize, kSize).value();
            };
            ASSERT_TRUE(post(fabric, [&] {
                          return memory.data(1).put_notify(
                              part(memory.local()), part(memory.at(1)),
                              notification(memory.cell_at(1, 0), i + 1), &completions[i]);
                        }).is_ok());
          }
          Completion released;
          ASSERT_TRUE(post(fabric, [&] {
                        return memory.data(1).flush(Visibility::kLocal, &released);
                      }).is_ok());
          ASSERT_TRUE(progress_until(fabric, [&] { return released.is_done(); }));
          for (const Completion& completion : completions) {
            EXPECT_TRUE(completion.is_done() && completion.status().is_ok());
          }
          EXPECT_GT(fabric.counters().peer(Rank(1)).busy, 0u);
        } else {
          ASSERT_TRUE(await_cell(fabric, memory.cell(0), kPuts));
        }
      },
      2);
}

// Memory of the caller can be deregistered and freed at any moment, so it is written at once or
// never.
TEST_P(UcxTransferTest, WrappedMemoryIsATargetToo) {
  run([](Fabric& fabric) {
    constexpr std::size_t kSize = 1 << 20;
    std::vector<std::byte> own(kSize);
    auto region =
        fabric.register_memory(MemoryRegion::wrap(own.data(), own.size()).value()).value();
    Exposed memory(fabric, "cells", kSize, 1);
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(fabric.bootstrap().publish("wrapped", region->descriptor()).is_ok());
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
      EXPECT_TRUE(is_filled(own, 11));
    } else {
      const Bytes descriptor =
          fabric.bootstrap().lookup("wrapped", std::chrono::seconds(10)).value();
      auto remote = fabric.import_region(Rank(1), descriptor).value();
      fill(own, 11);
      Completion completion;
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.data(1).put_notify(region->whole(), remote->whole(),
                                                     notification(memory.cell_at(1, 0), 1),
                                                     &completion);
                  }).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return completion.is_done(); }));
      EXPECT_TRUE(completion.status().is_ok()) << completion.status().to_string();
    }
    sync(fabric, "checked");
  });
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxTransferTest, ::testing::Values(RmaMode::kOff, RmaMode::kOn),
                         [](const auto& mode) {
                           return mode.param == RmaMode::kOn ? "rma" : "messages";
                         });

}  // namespace
}  // namespace dunlin::testing
