// GPU memory that its owner no longer uses while peers have it open: it is freed when no living
// peer has it open any more, and not before. On the stand-in for the driver, which counts memory
// that is freed too early.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "runtime/gpu/cuda_driver.h"
#include "tests/conformance/shared.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"
#include "transports/shm/openings.h"
#include "transports/shm/retired_memory.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;
using transport::LocalRegion;
using transport::RemoteRegion;
using transport::shm::kGpuCloseTime;
using transport::shm::opener_of;
using transport::shm::Openings;
using transport::shm::RecordedOpening;
using transport::shm::RetiredMemory;
using transport::shm::SegmentLayout;

constexpr auto kLong = std::chrono::seconds(30);
constexpr std::size_t kSize = 5000;

FakeCuda* const fake = use_gpu_library();

class ShmGpuFree : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fake == nullptr) GTEST_SKIP() << "counts what the stand-in sees";
  }
  // Two processes: rank 0 owns the memory, rank 1 opens it.
  static void run(const RankBody& body, std::set<int> killed = {}) {
    run_gpu_ranks(fake, PeerKind::kProcesses, 2, body, std::move(killed));
  }
};

std::unique_ptr<LocalRegion> allocate(Fabric& fabric) {
  return fabric.allocate_on_gpu(load_cuda_driver().value(), 0, kSize).value();
}

void publish(Fabric& fabric, const std::string& key, const LocalRegion& region) {
  ASSERT_TRUE(fabric.bootstrap().publish(key, region.descriptor()).is_ok());
}

Result<std::unique_ptr<RemoteRegion>> import(Fabric& fabric, const std::string& key) {
  const Bytes descriptor = fabric.bootstrap().lookup(key, kLong * timeout_factor()).value();
  return fabric.import_region(Rank(0), descriptor);
}

bool is_freed(Fabric& fabric) {
  return progress_until(fabric, [] { return fake->allocations() == 0; });
}

// Long enough for the owner to look at the openers several times.
void progress_for_a_while(Fabric& fabric) {
  const TimePoint end = fabric.clock().now() + 5 * transport::shm::kOpenersInterval;
  while (fabric.clock().now() < end) fabric.progress();
}

TEST_F(ShmGpuFree, TheOwnerIsDoneFirst) {
  run([](Fabric& fabric) {
    std::unique_ptr<LocalRegion> own;
    std::unique_ptr<RemoteRegion> theirs;
    if (fabric.rank() == Rank(0)) {
      own = allocate(fabric);
      publish(fabric, "memory", *own);
    } else {
      theirs = import(fabric, "memory").value();
    }
    sync(fabric, "open");
    const std::byte* const address = own == nullptr ? nullptr : own->data();
    own.reset();
    sync(fabric, "the owner is done");
    if (fabric.rank() == Rank(0)) {
      progress_for_a_while(fabric);
      EXPECT_EQ(fake->allocations(), 1);
      // The address is not used for anything else meanwhile.
      const auto next = allocate(fabric);
      EXPECT_NE(next->data(), address);
    } else {
      const auto local = fabric.allocate(kSize).value();
      const Status status = fabric.link(Rank(0)).value()->data().put(local->slice(0, kSize).value(),
                                                                     theirs->whole(), nullptr);
      EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
    }
    sync(fabric, "looked");
    theirs.reset();
    EXPECT_TRUE(is_freed(fabric));
  });
}

TEST_F(ShmGpuFree, SeveralOpeningsOfAPeerCountEach) {
  run([](Fabric& fabric) {
    std::unique_ptr<LocalRegion> own;
    std::vector<std::unique_ptr<RemoteRegion>> theirs;
    if (fabric.rank() == Rank(0)) {
      own = allocate(fabric);
      publish(fabric, "memory", *own);
    } else {
      for (int i = 0; i < 3; ++i) theirs.push_back(import(fabric, "memory").value());
    }
    sync(fabric, "open");
    own.reset();
    for (int closed = 0; closed < 3; ++closed) {
      if (fabric.rank() == Rank(0)) {
        progress_for_a_while(fabric);
        EXPECT_EQ(fake->allocations(), 1) << closed;
      }
      sync(fabric, "looked " + std::to_string(closed));
      if (fabric.rank() == Rank(1)) theirs.pop_back();
      sync(fabric, "closed " + std::to_string(closed));
    }
    EXPECT_TRUE(is_freed(fabric));
  });
}

TEST_F(ShmGpuFree, AnOpenerThatDiesHasClosedIt) {
  const SharedCount steps;
  run(
      [&steps](Fabric& fabric) {
        if (fabric.rank() == Rank(1)) {
          const auto theirs = import(fabric, "memory").value();
          sync(fabric, "open");
          steps->fetch_add(1);
          EXPECT_TRUE(await_count(steps, 2));
          kill(getpid(), SIGKILL);
        }
        auto own = allocate(fabric);
        publish(fabric, "memory", *own);
        sync(fabric, "open");
        own.reset();
        progress_for_a_while(fabric);
        EXPECT_EQ(fake->allocations(), 1);
        steps->fetch_add(1);
        EXPECT_TRUE(is_freed(fabric));
      },
      {1});
}

TEST_F(ShmGpuFree, WhatNobodyHasOpenIsFreedAtOnce) {
  run([](Fabric& fabric) {
    if (fabric.rank() == Rank(0)) {
      auto own = allocate(fabric);
      publish(fabric, "memory", *own);
      own.reset();
      EXPECT_EQ(fake->allocations(), 0);
      sync(fabric, "gone");
    } else {
      sync(fabric, "gone");
      const std::uint64_t calls = fake->calls;
      const Status status = import(fabric, "memory").status();
      EXPECT_EQ(status.code(), Code::kNotFound);
      EXPECT_NE(status.message().find("has deregistered"), std::string::npos) << status.to_string();
      EXPECT_EQ(fake->calls, calls) << "it asked the driver";
    }
  });
}

// The owner frees while the peer opens: the peer gets the memory, which stays, or an error.
TEST_F(ShmGpuFree, OpeningAndFreeingAtTheSameTime) {
  run([](Fabric& fabric) {
    constexpr int kRounds = 300;
    const SteadyClock clock;
    int opened = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = "memory " + std::to_string(round);
      if (fabric.rank() == Rank(0)) {
        auto own = allocate(fabric);
        publish(fabric, name, *own);
        const TimePoint end = clock.now() + std::chrono::microseconds(round % 50 * 20);
        while (clock.now() < end) fabric.progress();
      } else {
        const auto theirs = import(fabric, name);
        if (!theirs) {
          EXPECT_EQ(theirs.status().code(), Code::kNotFound) << theirs.status().to_string();
        }
        opened += theirs.is_ok() ? 1 : 0;
        if (round % 3 == 0) progress_for_a_while(fabric);
      }
    }
    EXPECT_TRUE(is_freed(fabric));
  });
}

// A peer whose driver fails to close the memory may have it open until its process ends.
TEST_F(ShmGpuFree, AFailedCloseKeepsTheMemory) {
  run([](Fabric& fabric) {
    std::unique_ptr<LocalRegion> own;
    std::unique_ptr<RemoteRegion> theirs;
    if (fabric.rank() == Rank(0)) {
      own = allocate(fabric);
      publish(fabric, "memory", *own);
    } else {
      theirs = import(fabric, "memory").value();
      fake->failing_name = "cuIpcCloseMemHandle";
      fake->failing_code = 999;
      fake->failing_call = 1;
      theirs.reset();
      EXPECT_EQ(fake->opened(), 1);
    }
    sync(fabric, "not closed");
    own.reset();
    if (fabric.rank() == Rank(0)) {
      progress_for_a_while(fabric);
      EXPECT_EQ(fake->allocations(), 1);
      sync(fabric, "looked");
      // The transport's end waits for the peer's process.
    } else {
      sync(fabric, "looked");
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
  });
}

// A table of openings, and the memory of an owner, without a fabric.
class OpeningsTest : public ::testing::Test {
 protected:
  OpeningsTest() : segment_(MemoryRegion::allocate(sizeof(SegmentLayout)).value()) {}
  Openings& openings() { return reinterpret_cast<SegmentLayout*>(segment_->data())->openings; }
  // A process that runs `body` and then lives until it is killed.
  pid_t start(const std::function<void()>& body) {
    int done[2];
    EXPECT_EQ(pipe(done), 0);
    const pid_t child = fork();
    if (child == 0) {
      body();
      EXPECT_EQ(write(done[1], "x", 1), 1);
      for (;;) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(done[0], &byte, 1), 1);
    close(done[0]);
    close(done[1]);
    return child;
  }
  // The process is dead when the call returns, although nobody has waited for it yet.
  static void kill_without_waiting(pid_t child) {
    kill(child, SIGKILL);
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  }

  std::shared_ptr<MemoryRegion> segment_;
  std::shared_ptr<FakeGpu> gpu_ = std::make_shared<FakeGpu>();
};

TEST_F(OpeningsTest, NamesALivingOpener) {
  {
    const auto opened = RecordedOpening::record(openings(), 5).value();
    EXPECT_EQ(opener_of(openings(), 5), getpid());
    EXPECT_EQ(opener_of(openings(), 6), 0);
  }
  EXPECT_EQ(opener_of(openings(), 5), 0);
  const pid_t child = start([&] { RecordedOpening::record(openings(), 5).value().keep(); });
  EXPECT_EQ(opener_of(openings(), 5), child);
  kill_without_waiting(child);
  EXPECT_EQ(opener_of(openings(), 5), 0);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(opener_of(openings(), 5), 0);
}

// A process with the number of one that has ended is another process.
TEST_F(OpeningsTest, ANumberThatIsUsedAgainIsAnotherProcess) {
  const auto opened = RecordedOpening::record(openings(), 5).value();
  openings()[0].opener.fetch_sub(1);  // as if it had started earlier
  EXPECT_EQ(opener_of(openings(), 5), 0);
  openings()[0].opener.fetch_add(1);
  EXPECT_EQ(opener_of(openings(), 5), getpid());
}

TEST_F(OpeningsTest, EntriesOfTheDeadAreTakenOver) {
  const std::size_t most = openings().size();
  const pid_t child = start([&] {
    for (std::size_t i = 0; i < most; ++i) RecordedOpening::record(openings(), 7).value().keep();
  });
  const Status full = RecordedOpening::record(openings(), 8).status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full.to_string();
  kill_without_waiting(child);
  const auto opened = RecordedOpening::record(openings(), 8);
  EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
  EXPECT_EQ(opener_of(openings(), 8), getpid());
  EXPECT_EQ(opener_of(openings(), 7), 0);
  waitpid(child, nullptr, 0);
}

// What a peer has open even after the transport's end stays, until a later transport looks.
TEST_F(OpeningsTest, ATransportThatEndsLeavesWhatIsOpen) {
  class JumpingClock final : public Clock {
   public:
    TimePoint now() const override { return now_ += kGpuCloseTime; }

   private:
    mutable TimePoint now_{};
  };
  const JumpingClock clock;
  auto opened = std::make_unique<RecordedOpening>(RecordedOpening::record(openings(), 5).value());
  {
    RetiredMemory retired(segment_, clock);
    retired.add(MemoryRegion::allocate_on_gpu(gpu_, 0, 64).value(), 5);
    EXPECT_FALSE(retired.is_empty());
    retired.add(MemoryRegion::allocate_on_gpu(gpu_, 0, 64).value(), 6);
    EXPECT_EQ(gpu_->allocations(), 1);
  }
  EXPECT_EQ(gpu_->allocations(), 1);
  RetiredMemory later(segment_, clock);
  later.add(MemoryRegion::allocate_on_gpu(gpu_, 0, 64).value(), 7);
  EXPECT_EQ(gpu_->allocations(), 1);
  opened.reset();
  later.add(MemoryRegion::allocate_on_gpu(gpu_, 0, 64).value(), 8);
  EXPECT_EQ(gpu_->allocations(), 0);
}

}  // namespace
}  // namespace dunlin::testing
