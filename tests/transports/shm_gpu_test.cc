// GPU memory over the shm transport, on a GPU or on the stand-in for its driver (tests/fake_cuda):
// the contract of lanes (transports/lane.h) holds whatever the memory at both ends.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/gpu/cuda_driver.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_range.h"
#include "tests/support/ranks.h"
#include "transports/mapped_cells.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::Lane;
using transport::LocalRegion;
using transport::Notifier;
using transport::Visibility;

// Memory that Dunlin allocates on the host or on a GPU; host memory that it does not allocate; and
// memory of a GPU that a program has put together from pieces.
enum class End { kHost, kCuda, kUsers, kPieces };
const char* to_string(End end) {
  constexpr const char* kNames[] = {"host", "cuda", "users", "pieces"};
  return kNames[static_cast<int>(end)];
}

// Memory of some kind that is exposed to all ranks, and its bytes.
class Memory {
 public:
  Memory(Fabric& fabric, const std::string& name, End end, std::size_t size, std::size_t cells)
      : driver_(load_cuda_driver().value()),
        users_(end == End::kUsers ? size : 0),
        exposed_(fabric, name, make(fabric, end, size), cells) {}

  Exposed* operator->() { return &exposed_; }
  MemoryKind kind() { return exposed_.local().memory()->kind(); }

  void write(std::uint64_t seed, std::size_t offset, std::size_t size) {
    std::vector<std::byte> bytes(size);
    fill(bytes, seed);
    std::byte* const to = exposed_.local().data() + offset;
    if (kind() == MemoryKind::kHost) {
      std::copy(bytes.begin(), bytes.end(), to);
    } else if (size > 0) {
      copy_and_await(*driver_, [&](GpuStream& stream) {
        return stream.copy_to_device(to, bytes.data(), size);
      });
    }
  }
  bool is_filled(std::uint64_t seed, std::size_t offset, std::size_t size) {
    std::vector<std::byte> bytes(size);
    const std::byte* const from = exposed_.local().data() + offset;
    if (kind() == MemoryKind::kHost) {
      std::copy(from, from + size, bytes.begin());
    } else if (size > 0) {
      copy_and_await(*driver_, [&](GpuStream& stream) {
        return stream.copy_to_host(bytes.data(), from, size);
      });
    }
    return testing::is_filled(bytes, seed);
  }

 private:
  std::unique_ptr<LocalRegion> make(Fabric& fabric, End end, std::size_t size) {
    if (end == End::kHost) return fabric.allocate(size).value();
    if (end == End::kCuda) return fabric.allocate_on_gpu(driver_, 0, size).value();
    if (end == End::kPieces) {
      pieces_ = std::make_unique<GpuRangeMemory>(size, 1000);
      return fabric.register_memory(MemoryRegion::wrap(pieces_->data(), size, driver_).value())
          .value();
    }
    return fabric.register_memory(MemoryRegion::wrap(users_.data(), size).value()).value();
  }
  std::shared_ptr<GpuDriver> driver_;
  std::vector<std::byte> users_;
  std::unique_ptr<GpuRangeMemory> pieces_;
  Exposed exposed_;
};

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const fake = use_gpu_library();

void run(PeerKind kind, const RankBody& body, int size = 2) {
  run_gpu_ranks(fake, kind, size, body);
}

// Late streams, by a seed of the test's.
void delay(std::uint64_t seed) {
  if (fake == nullptr) return;
  fake->seed = seed;
  fake->delay_us = 3000;
}

using Ends = std::tuple<PeerKind, End, End>;  // the peers; from; to
class ShmGpuLane : public ::testing::TestWithParam<Ends> {
 protected:
  static PeerKind peers() { return std::get<0>(GetParam()); }
  static End from() { return std::get<1>(GetParam()); }
  static End to() { return std::get<2>(GetParam()); }
};

TEST_P(ShmGpuLane, DataOfEverySizeArrivesBeforeItsNotification) {
  run(peers(), [](Fabric& fabric) {
    constexpr std::size_t kLargest = 3 << 20;
    Memory source(fabric, "from", from(), kLargest, 1);
    Memory target(fabric, "to", to(), kLargest, 2);
    delay(7);
    std::uint64_t sequence = 0;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{41},
                                   std::size_t{4096}, std::size_t{65537}, kLargest}) {
      ++sequence;
      if (fabric.rank() == Rank(0)) {
        source.write(sequence, 0, size);
        const Status status = complete(fabric, [&](Completion* completion) {
          return target->data(1).put_notify(
              source->local().slice(0, size).value(), target->at(1).slice(0, size).value(),
              notification(target->cell_at(1, 0), sequence), completion);
        });
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        ASSERT_TRUE(await_cell(fabric, target->cell(1), sequence)) << size;
      } else {
        ASSERT_TRUE(await_cell(fabric, target->cell(0), sequence)) << size;
        EXPECT_TRUE(target.is_filled(sequence, 0, size)) << size;
        ASSERT_TRUE(
            target->data(0).notify(notification(target->cell_at(0, 1), sequence), nullptr).is_ok());
      }
    }
    sync(fabric, "done");
  });
}

// Many puts, each followed by a notification in another way, so that several copies are in progress
// when a notification is posted.
TEST_P(ShmGpuLane, NotificationsFollowAllEarlierPuts) {
  run(peers(), [](Fabric& fabric) {
    constexpr std::size_t kSlots = 48;
    constexpr std::size_t kSize = 2000;
    Memory source(fabric, "from", from(), kSlots * kSize, 1);
    Memory target(fabric, "to", to(), kSlots * kSize, 2);
    Lane& lane = target->data(1 - fabric.rank().value());
    for (std::uint64_t round = 1; round <= 8; ++round) {
      delay(round);
      if (fabric.rank() == Rank(0)) {
        Notifier notifier(lane);
        for (std::size_t slot = 0; slot < kSlots; ++slot)
          source.write(round * 100 + slot, slot * kSize, kSize);
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
          const auto piece = source->local().slice(slot * kSize, kSize).value();
          const auto place = target->at(1).slice(slot * kSize, kSize).value();
          const auto told = notification(target->cell_at(1, 0), (round - 1) * kSlots + slot + 1);
          const Status status = post(fabric, [&] {
            return slot % 3 == 0 ? lane.put_notify(piece, place, told, nullptr)
                                 : lane.put(piece, place, nullptr);
          });
          ASSERT_TRUE(status.is_ok()) << status.to_string();
          if (slot % 3 == 0) continue;
          ASSERT_TRUE(post(fabric, [&] {
                        return slot % 3 == 1 ? notifier.notify(told) : lane.notify(told, nullptr);
                      }).is_ok());
        }
        ASSERT_TRUE(await_cell(fabric, target->cell(1), round));
      } else {
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
          ASSERT_TRUE(await_cell(fabric, target->cell(0), (round - 1) * kSlots + slot + 1));
          ASSERT_TRUE(target.is_filled(round * 100 + slot, slot * kSize, kSize))
              << "round " << round << ", slot " << slot;
        }
        ASSERT_TRUE(post(fabric, [&] {
                      return lane.notify(notification(target->cell_at(0, 1), round), nullptr);
                    }).is_ok());
      }
    }
    sync(fabric, "done");
  });
}

TEST_P(ShmGpuLane, ARankReachesItself) {
  run(
      peers(),
      [](Fabric& fabric) {
        Memory source(fabric, "from", from(), 4096, 1);
        Memory target(fabric, "to", to(), 4096, 1);
        source.write(5, 0, 4096);
        ASSERT_TRUE(complete(fabric, [&](Completion* completion) {
                      return target->data(0).put_notify(
                          source->local().whole(), target->at(0).whole(),
                          notification(target->cell(0), 1), completion);
                    }).is_ok());
        ASSERT_TRUE(await_cell(fabric, target->cell(0), 1));
        EXPECT_TRUE(target.is_filled(5, 0, 4096));
      },
      1);
}

TEST_P(ShmGpuLane, AGetReadsThePeersMemory) {
  run(peers(), [](Fabric& fabric) {
    Memory own(fabric, "own", from(), 10000, 1);
    Memory theirs(fabric, "theirs", to(), 10000, 1);
    theirs.write(static_cast<std::uint64_t>(fabric.rank().value()) + 1, 0, 10000);
    sync(fabric, "written");
    const int peer = 1 - fabric.rank().value();
    const Status status = complete(fabric, [&](Completion* completion) {
      return theirs->data(peer).reads()->get(theirs->at(peer).slice(0, 10000).value(),
                                             own->local().slice(0, 10000).value(), completion);
    });
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(own.is_filled(static_cast<std::uint64_t>(peer) + 1, 0, 10000));
    sync(fabric, "read");
  });
}

std::string name_of(const ::testing::TestParamInfo<Ends>& info) {
  const auto [peers, from, to] = info.param;
  return to_string(peers) + "_" + to_string(from) + "_" + to_string(to);
}
INSTANTIATE_TEST_SUITE_P(All, ShmGpuLane,
                         ::testing::Values(Ends{PeerKind::kThreads, End::kCuda, End::kCuda},
                                           Ends{PeerKind::kThreads, End::kHost, End::kCuda},
                                           Ends{PeerKind::kThreads, End::kCuda, End::kHost},
                                           Ends{PeerKind::kProcesses, End::kCuda, End::kCuda},
                                           Ends{PeerKind::kProcesses, End::kHost, End::kCuda},
                                           Ends{PeerKind::kProcesses, End::kCuda, End::kHost},
                                           Ends{PeerKind::kThreads, End::kCuda, End::kUsers},
                                           Ends{PeerKind::kProcesses, End::kCuda, End::kUsers},
                                           Ends{PeerKind::kProcesses, End::kUsers, End::kCuda},
                                           Ends{PeerKind::kThreads, End::kPieces, End::kPieces},
                                           Ends{PeerKind::kProcesses, End::kPieces, End::kPieces},
                                           Ends{PeerKind::kProcesses, End::kHost, End::kPieces},
                                           Ends{PeerKind::kProcesses, End::kPieces, End::kCuda}),
                         name_of);

class ShmGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  }
  static void run(const RankBody& body) { testing::run(PeerKind::kThreads, body, 1); }
};

// While a copy is in progress, nothing that is ordered behind it happens, and the fabric does not
// sleep over it.
TEST_F(ShmGpu, WhatIsOrderedBehindACopyWaitsForIt) {
  run([](Fabric& fabric) {
    Memory memory(fabric, "memory", End::kCuda, 4096, 1);
    Lane& lane = memory->data(0);
    fake->hold();
    Completion put;
    Completion flush;
    Completion notify;
    ASSERT_TRUE(
        lane.put(memory->local().slice(0, 8).value(), memory->at(0).slice(8, 8).value(), &put)
            .is_ok());
    EXPECT_FALSE(lane.mapped_cells()->try_notify(notification(memory->cell(0), 1)));
    ASSERT_TRUE(lane.notify(notification(memory->cell(0), 1), &notify).is_ok());
    ASSERT_TRUE(lane.flush(Visibility::kRemote, &flush).is_ok());
    for (int i = 0; i < 100; ++i) fabric.progress();
    EXPECT_FALSE(fabric.arm());
    fabric.disarm();
    EXPECT_FALSE(put.is_done() || notify.is_done() || flush.is_done());
    EXPECT_EQ(fabric.board().sequence(memory->cell(0)), 0u);
    fake->release();
    ASSERT_TRUE(await_cell(fabric, memory->cell(0), 1));
    ASSERT_TRUE(progress_until(fabric, [&] { return flush.is_done(); }));
    EXPECT_TRUE(put.is_done() && notify.is_done());
    EXPECT_TRUE(lane.mapped_cells()->try_notify(notification(memory->cell(0), 2)));
    EXPECT_TRUE(fabric.arm());
    fabric.disarm();
  });
}

TEST_F(ShmGpu, AFullQueueIsBusyAndLosesNothing) {
  run([](Fabric& fabric) {
    Memory memory(fabric, "memory", End::kCuda, 4096, 1);
    Lane& lane = memory->data(0);
    fake->hold();
    std::array<Completion, 200> puts;
    std::size_t posted = 0;
    Status status;
    while (posted < puts.size()) {
      status = lane.put(memory->local().slice(0, 8).value(), memory->at(0).slice(8, 8).value(),
                        &puts[posted]);
      if (!status.is_ok()) break;
      ++posted;
    }
    EXPECT_TRUE(status.is_busy());
    EXPECT_TRUE(lane.notify(notification(memory->cell(0), 1), nullptr).is_busy());
    EXPECT_EQ(posted, 64u);
    fake->release();
    for (std::size_t i = 0; i < posted; ++i) {
      ASSERT_TRUE(progress_until(fabric, [&] { return puts[i].is_done(); }));
      EXPECT_TRUE(puts[i].status().is_ok());
    }
    EXPECT_EQ(fake->copies, posted);
    EXPECT_TRUE(lane.notify(notification(memory->cell(0), 1), nullptr).is_ok());
  });
}

// After a copy has failed, nothing announces its data.
TEST_F(ShmGpu, AFailedCopyIsNotAnnounced) {
  run([](Fabric& fabric) {
    Memory memory(fabric, "memory", End::kCuda, 4096, 1);
    Lane& lane = memory->data(0);
    fake->hold();
    fake->failing_work = 1;
    Completion put;
    ASSERT_TRUE(lane.put_notify(memory->local().slice(0, 8).value(),
                                memory->at(0).slice(8, 8).value(), notification(memory->cell(0), 1),
                                &put)
                    .is_ok());
    fake->release();
    ASSERT_TRUE(progress_until(fabric, [&] { return put.is_done(); }));
    EXPECT_EQ(put.status().code(), Code::kIoError);
    EXPECT_NE(put.status().message().find("a copy of GPU memory: cuEventQuery"), std::string::npos)
        << put.status().to_string();
    EXPECT_EQ(lane.notify(notification(memory->cell(0), 2), nullptr).code(), Code::kIoError);
    EXPECT_EQ(lane.flush(Visibility::kRemote, nullptr).code(), Code::kIoError);
    EXPECT_EQ(fabric.board().sequence(memory->cell(0)), 0u);
  });
}

TEST_F(ShmGpu, ClosingWaitsForTheCopies) {
  run([](Fabric& fabric) {
    Memory memory(fabric, "memory", End::kCuda, 4096, 1);
    Lane& lane = memory->data(0);
    fake->hold();
    Completion put;
    ASSERT_TRUE(
        lane.put(memory->local().slice(0, 8).value(), memory->at(0).slice(8, 8).value(), &put)
            .is_ok());
    std::thread releaser([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      fake->release();
    });
    lane.close();
    EXPECT_TRUE(put.is_done());
    EXPECT_EQ(fake->copies, 1u);
    EXPECT_EQ(lane.notify(notification(memory->cell(0), 1), nullptr).code(), Code::kClosed);
    releaser.join();
  });
}

TEST_F(ShmGpu, AtomicsOnGpuMemoryAreRefused) {
  run([](Fabric& fabric) {
    Memory memory(fabric, "memory", End::kCuda, 4096, 1);
    const Status status = memory->data(0).atomics()->fetch_add(memory->at(0).slice(0, 8).value(), 1,
                                                               nullptr, nullptr);
    EXPECT_EQ(status.code(), Code::kUnavailable);
  });
}

// CUDA shares what cuMemAlloc has returned, and nothing else.
TEST_F(ShmGpu, MemoryThatCannotBeSharedSaysWhy) {
  run([](Fabric& fabric) {
    const auto driver = load_cuda_driver().value();
    std::byte* const data = driver->allocate(0, 64).value();
    auto region = fabric.register_memory(MemoryRegion::wrap(data, 64, driver).value()).value();
    fake->failing_name = "cuIpcGetMemHandle";
    fake->failing_code = 1;
    fake->failing_call = 1;
    const Status status = fabric.import_region(fabric.rank(), region->descriptor()).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("CUDA cannot share this memory"), std::string::npos)
        << status.to_string();
    region.reset();
    driver->free(0, data);
  });
}

// Memory that is freed, and allocated again at the same address, is other memory.
TEST_F(ShmGpu, ADeregisteredRegionIsNotWritten) {
  run([](Fabric& fabric) {
    Memory memory(fabric, "memory", End::kCuda, 4096, 1);
    Memory other(fabric, "other", End::kCuda, 4096, 1);
    other->owned().reset();
    const Status status =
        other->data(0).put(memory->local().whole(), other->at(0).whole(), nullptr);
    EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
  });
}

// Whatever call of the driver fails: an error or the right bytes, never a wrong notification.
TEST_F(ShmGpu, AnyDriverCallMayFail) {
  for (std::uint64_t failing = 1; failing < 400; ++failing) {
    bool has_failed = false;
    run([&](Fabric& fabric) {
      const auto driver = load_cuda_driver().value();
      Memory target(fabric, "target", End::kHost, 4096, 1);
      auto memory = MemoryRegion::allocate_on_gpu(driver, 0, 64).value();
      const auto source = fabric.register_memory(memory).value();
      std::memset(fake->contents(memory->data(), 64), 3, 64);
      fake->failing_code = 999;
      fake->failing_call = failing;
      Completion put;
      const Status posted =
          target->data(0).put_notify(source->whole(), target->at(0).slice(0, 64).value(),
                                     notification(target->cell(0), 1), &put);
      if (posted.is_ok()) {
        ASSERT_TRUE(progress_until(fabric, [&] { return put.is_done(); }));
      }
      has_failed = fake->failing_call == 0;
      fake->failing_call = 0;
      const bool is_told = fabric.board().sequence(target->cell(0)) == 1;
      EXPECT_EQ(is_told, posted.is_ok() && put.status().is_ok()) << failing;
      if (is_told) {
        EXPECT_EQ(target->local().data()[63], std::byte{3});
      } else {
        const Status& status = posted.is_ok() ? put.status() : posted;
        EXPECT_NE(status.message().find(fake->failed_call), std::string::npos)
            << failing << ": " << status.to_string();
      }
    });
    if (!has_failed) {
      EXPECT_GT(failing, 8u);
      return;
    }
  }
  FAIL() << "calls without end";
}

}  // namespace
}  // namespace dunlin::testing
