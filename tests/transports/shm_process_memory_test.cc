// Memory that Dunlin did not allocate, over the shm transport: the contract of lanes
// (transports/lane.h) holds for it, though other processes cannot map it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "transports/mapped_cells.h"
#include "transports/shm/process_memory.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using transport::Completion;
using transport::Fabric;
using transport::Lane;
using transport::LocalRegion;
using transport::Notifier;
using transport::Visibility;
using transport::shm::BusyQueues;
using transport::shm::PeerProcess;
using transport::shm::ProcessMemoryQueue;
using Direction = ProcessMemoryQueue::Direction;

std::unique_ptr<LocalRegion> wrap(Fabric& fabric, std::span<std::byte> bytes) {
  return fabric.register_memory(MemoryRegion::wrap(bytes.data(), bytes.size()).value()).value();
}

RunOptions over_shm(PeerKind kind) {
  return {.kind = kind, .size = 2, .killed = {}, .configure = [](Config& config) {
            config.transports = {"shm"};
          }};
}

class ProcessMemory : public ::testing::TestWithParam<PeerKind> {};

TEST_P(ProcessMemory, PutsAreThereBeforeNotifications) {
  run_ranks(over_shm(GetParam()), [](Fabric& fabric) {
    constexpr std::size_t kSize = 3 << 20;
    std::vector<std::byte> bytes(kSize);
    std::vector<std::byte> source(kSize);
    Exposed memory(fabric, "memory", wrap(fabric, bytes), 2);
    const auto from = wrap(fabric, source);
    const int peer = 1 - fabric.rank().value();
    Lane& lane = memory.data(peer);
    Notifier notifier(lane);
    for (std::uint64_t round = 1; round <= 30; ++round) {
      // 1 B to 3 MiB, alone and in pieces, announced in each of the three ways.
      const std::size_t size = std::min<std::size_t>(kSize, std::size_t{1} << (round % 22));
      fill(std::span(source).first(size), round);
      const auto whole = memory.at(peer).slice(kSize - size, size).value();
      const auto announced = notification(memory.cell_at(peer, 0), round);
      if (round % 3 == 0) {
        EXPECT_TRUE(
            lane.put_notify(from->slice(0, size).value(), whole, announced, nullptr).is_ok());
      } else {
        const std::size_t piece = std::max<std::size_t>(1, size / 40);
        for (std::size_t at = 0; at < size; at += piece) {
          const std::size_t part = std::min(piece, size - at);
          ASSERT_TRUE(
              lane.put(from->slice(at, part).value(), whole.slice(at, part).value(), nullptr)
                  .is_ok());
        }
        EXPECT_TRUE((round % 3 == 1 ? notifier.notify(announced) : lane.notify(announced, nullptr))
                        .is_ok());
      }
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), round));
      EXPECT_TRUE(is_filled(std::span(bytes).last(size), round)) << "round " << round;
      EXPECT_TRUE(lane.notify(notification(memory.cell_at(peer, 1), round), nullptr).is_ok());
      ASSERT_TRUE(await_cell(fabric, memory.cell(1), round));
    }
  });
}

TEST_P(ProcessMemory, ManyBlocksComplete) {
  run_ranks(over_shm(GetParam()), [](Fabric& fabric) {
    constexpr std::size_t kBlock = 512;
    constexpr std::size_t kBlocks = 10'000;
    std::vector<std::byte> bytes(kBlock * kBlocks);
    std::vector<std::byte> own(kBlock * kBlocks);
    Exposed memory(fabric, "memory", wrap(fabric, bytes), 1);
    const auto local = wrap(fabric, own);
    const int peer = 1 - fabric.rank().value();
    fill(own, 5);
    std::vector<Completion> written(kBlocks), read(kBlocks);
    const auto place = [](std::size_t block) { return block * 7919 % kBlocks * kBlock; };
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const auto from = local->slice(i * kBlock, kBlock).value();
      const auto to = memory.at(peer).slice(place(i), kBlock).value();
      ASSERT_TRUE(memory.data(peer).put(from, to, &written[i]).is_ok());
    }
    EXPECT_TRUE(progress_until(fabric, [&] { return written.back().is_done(); }));
    sync(fabric, "written");
    std::fill(own.begin(), own.end(), std::byte{});
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const auto to = local->slice(i * kBlock, kBlock).value();
      const auto from = memory.at(peer).slice(place(i), kBlock).value();
      ASSERT_TRUE(memory.data(peer).reads()->get(from, to, &read[i]).is_ok());
    }
    EXPECT_TRUE(progress_until(fabric, [&] { return read.back().is_done(); }));
    EXPECT_TRUE(is_filled(own, 5));
    for (std::size_t i = 0; i < kBlocks; ++i)
      EXPECT_TRUE(written[i].is_done() && written[i].status().is_ok() && read[i].status().is_ok());
    sync(fabric, "read");
  });
}

// A get sees what was put before it, and a put behind a get does not change what it has read.
TEST_P(ProcessMemory, PutsAndGetsKeepTheirOrder) {
  run_ranks(over_shm(GetParam()), [](Fabric& fabric) {
    std::vector<std::byte> bytes(4096);
    std::vector<std::byte> own(3 * 4096);
    Exposed memory(fabric, "memory", wrap(fabric, bytes), 1);
    if (fabric.rank() == Rank(0)) {
      const auto local = wrap(fabric, own);
      fill(std::span(own).first(4096), 1);
      fill(std::span(own).last(4096), 2);
      const auto there = memory.at(1).whole();
      Lane& lane = memory.data(1);
      Completion read;
      EXPECT_TRUE(lane.put(local->slice(0, 4096).value(), there, nullptr).is_ok());
      EXPECT_TRUE(lane.reads()->get(there, local->slice(4096, 4096).value(), &read).is_ok());
      EXPECT_TRUE(lane.put(local->slice(8192, 4096).value(), there, nullptr).is_ok());
      EXPECT_TRUE(complete(fabric, [&](Completion* done) {
                    return lane.flush(Visibility::kRemote, done);
                  }).is_ok());
      EXPECT_TRUE(read.is_done());
      EXPECT_TRUE(is_filled(std::span(own).subspan(4096, 4096), 1));
    }
    sync(fabric, "done");
    EXPECT_TRUE(fabric.rank() == Rank(0) || is_filled(bytes, 2));
  });
}

TEST_P(ProcessMemory, WhatIsDeregisteredIsRefused) {
  run_ranks(over_shm(GetParam()), [](Fabric& fabric) {
    std::vector<std::byte> bytes(4096);
    Exposed memory(fabric, "memory", wrap(fabric, bytes), 1);
    if (fabric.rank() == Rank(1)) memory.owned().reset();
    sync(fabric, "deregistered");
    if (fabric.rank() == Rank(0)) {
      EXPECT_EQ(memory.data(1).put(memory.local().whole(), memory.at(1).whole(), nullptr).code(),
                Code::kNotFound);
    }
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(, ProcessMemory,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& each) { return to_string(each.param); });

TEST(ProcessMemoryErrors, UnmappedMemoryFailsTheOperationAndWhatFollows) {
  run_ranks(over_shm(PeerKind::kProcesses), [](Fabric& fabric) {
    constexpr std::size_t kSize = 8192;
    void* const pages =
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Exposed memory(fabric, "memory", wrap(fabric, {static_cast<std::byte*>(pages), kSize}), 1);
    if (fabric.rank() == Rank(1)) munmap(pages, kSize);
    sync(fabric, "unmapped");
    if (fabric.rank() == Rank(0)) {
      Lane& lane = memory.data(1);
      Completion put;
      EXPECT_TRUE(lane.put(memory.local().whole(), memory.at(1).whole(), &put).is_ok());
      const Status notified = lane.notify(notification(memory.cell_at(1, 0), 1), nullptr);
      EXPECT_EQ(notified.code(), Code::kIoError) << "it would announce data that is not there";
      ASSERT_TRUE(put.is_done());
      EXPECT_EQ(put.status().code(), Code::kIoError);
      EXPECT_THAT(std::string(put.status().message()), HasSubstr("unmapped"));
      EXPECT_EQ(lane.failure().code(), Code::kIoError);
      Notifier notifier(lane);
      EXPECT_FALSE(notifier.notify(notification(memory.cell_at(1, 0), 1)).is_ok());
    }
    sync(fabric, "tried");
    EXPECT_EQ(fabric.board().sequence(memory.cell(0)), 0U);
  });
}

// poll() fails when a signal is handled, which says nothing of the peer.
TEST(ProcessMemoryErrors, SignalsEndNothing) {
  struct sigaction empty {};
  empty.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &empty, &before), 0);
  constexpr itimerval kOften{{0, 20}, {0, 20}};
  constexpr itimerval kNever{};
  PeerProcess self(getpid());
  ASSERT_EQ(setitimer(ITIMER_REAL, &kOften, nullptr), 0);
  for (int i = 0; i < 200'000; ++i) ASSERT_FALSE(self.has_ended()) << "call " << i;
  ASSERT_EQ(setitimer(ITIMER_REAL, &kNever, nullptr), 0);
  ASSERT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
}

TEST(ProcessMemoryErrors, ADeathEndsWhatWaits) {
  RunOptions options = over_shm(PeerKind::kProcesses);
  options.killed = {1};
  run_ranks(options, [](Fabric& fabric) {
    std::vector<std::byte> bytes(4096);
    Exposed memory(fabric, "memory", wrap(fabric, bytes), 1);
    sync(fabric, "connected");
    if (fabric.rank() == Rank(1)) kill(getpid(), SIGKILL);
    Status status;
    EXPECT_TRUE(progress_until(fabric, [&] {
      Completion put;
      status = memory.data(1).put(memory.local().whole(), memory.at(1).whole(), &put);
      if (!status.is_ok()) return true;
      EXPECT_TRUE(progress_until(fabric, [&] { return put.is_done(); }));
      status = put.status();
      return !status.is_ok();
    }));
    EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
  });
}

TEST(ProcessMemoryErrors, ASettingForbidsIt) {
  RunOptions options = over_shm(PeerKind::kProcesses);
  options.configure = [](Config& config) {
    config.transports = {"shm"};
    config.shm_process_memory = false;
  };
  run_ranks(options, [](Fabric& fabric) {
    std::vector<std::byte> bytes(4096);
    const auto region = wrap(fabric, bytes);
    const std::string key = "region " + std::to_string(fabric.rank().value());
    ASSERT_TRUE(fabric.bootstrap().publish(key, region->descriptor()).is_ok());
    const int peer = 1 - fabric.rank().value();
    const auto descriptor = fabric.bootstrap()
                                .lookup("region " + std::to_string(peer), std::chrono::seconds(30))
                                .value();
    const Status refusal = fabric.import_region(Rank(peer), descriptor).status();
    EXPECT_EQ(refusal.code(), Code::kUnavailable);
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("DUNLIN_SHM_CMA"));
    sync(fabric, "done");
  });
}

TEST(ProcessMemoryErrors, AFailedGetConcernsNoPut) {
  run_ranks(over_shm(PeerKind::kProcesses), [](Fabric& fabric) {
    constexpr std::size_t kSize = 8192;
    void* const pages =
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::vector<std::byte> bytes(kSize);
    Exposed gone(fabric, "gone", wrap(fabric, {static_cast<std::byte*>(pages), kSize}), 1);
    Exposed memory(fabric, "memory", wrap(fabric, bytes), 1);
    const auto own = fabric.allocate(kSize).value();
    if (fabric.rank() == Rank(1)) munmap(pages, kSize);
    sync(fabric, "unmapped");
    if (fabric.rank() == Rank(0)) {
      Lane& lane = memory.data(1);
      Completion get;
      EXPECT_TRUE(
          lane.reads()->get(gone.at(1).whole(), own->slice(0, kSize).value(), &get).is_ok());
      fill(own->memory()->bytes().first(kSize), 8);
      EXPECT_TRUE(lane.put_notify(own->slice(0, kSize).value(), memory.at(1).whole(),
                                  notification(memory.cell_at(1, 0), 1), nullptr)
                      .is_ok());
      ASSERT_TRUE(get.is_done());
      EXPECT_EQ(get.status().code(), Code::kIoError);
      EXPECT_EQ(get.status().peer(), Rank(1));
    } else {
      EXPECT_TRUE(await_cell(fabric, memory.cell(0), 1));
    }
    sync(fabric, "tried");
  });
}

// The queue itself, with this process as its peer.
class Held final : public ProcessMemoryQueue::Owner {
 public:
  void hold_for_process_memory(bool held) override { is_held = held; }
  bool is_held = false;
};

TEST(ProcessMemoryQueueTest, GathersAndJoinsOperations) {
  std::vector<std::byte> from(1 << 16);
  std::vector<std::byte> to(1 << 16);
  fill(from, 3);
  Held owner;
  BusyQueues busy;
  PeerProcess self(getpid());
  ProcessMemoryQueue queue(owner, busy, self, Rank(0));
  std::vector<Completion> done(256);
  for (std::size_t i = 0; i < done.size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(&to[i * 256]);
    ASSERT_TRUE(queue.add(Direction::kPut, &from[i * 256], address, 256, &done[i]).is_ok());
  }
  EXPECT_TRUE(owner.is_held);
  EXPECT_FALSE(done.front().is_done());
  EXPECT_EQ(busy.progress(), done.size());
  EXPECT_EQ(queue.system_calls(), 1U);
  EXPECT_FALSE(owner.is_held);
  EXPECT_TRUE(busy.is_empty());
  EXPECT_TRUE(done.back().is_done());
  EXPECT_EQ(from, to);

  // Operations that do not adjoin: one call for each 1,024 of them.
  for (std::size_t i = 0; i < 3000; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(&to[i * 2]);
    ASSERT_TRUE(queue.add(Direction::kGet, &from[i * 2], address, 1, nullptr).is_ok());
  }
  queue.run();
  EXPECT_EQ(queue.system_calls(), 4U);
}

}  // namespace
}  // namespace dunlin::testing
