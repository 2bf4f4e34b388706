// Puts, notifications, flushes and gets on GPU memory over real RDMA devices, with fake GPUs
// (fake_gpu.h). One kind of memory cannot be registered with the kernel, so the verbs transport
// tries all its ways and stages it. The other kind is registered, and no CPU may read it
// afterwards. Needs RDMA devices: run in guests.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/support/fake_gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::Lane;
using transport::LocalRegion;
using transport::Notification;
using transport::RemoteRegion;
using transport::Visibility;

constexpr std::size_t kSize = 300'000;
// The flags of a region on a GPU, and their place in its descriptor (transports/verbs/region.cc).
constexpr std::size_t kPlaceOfFlags = 20;
constexpr std::uint8_t kDirect = 4;
constexpr std::uint8_t kFlushed = 5;
constexpr std::uint8_t kStaged = 7;

struct Kind {
  const char* name;
  bool is_registrable;
  GpuWrites writes;
  std::uint8_t flags;
};
constexpr Kind kNoWayIn{"Staged", false, GpuWrites::kOrdered, kStaged};
constexpr Kind kOpen{"Direct", true, GpuWrites::kOrdered, kDirect};
constexpr Kind kOld{"DirectWithFlush", true, GpuWrites::kNeedFlush, kFlushed};

// The GPU of one rank with a region of its memory, and the region of the other rank.
class OnGpu {
 public:
  using Change = std::function<void(Bytes&)>;

  OnGpu(Fabric& fabric, const Kind& kind, const std::string& name) : fabric_(fabric) {
    FakeGpu::Options options;
    options.is_registrable = kind.is_registrable;
    options.writes = kind.writes;
    gpu_ = std::make_shared<FakeGpu>(std::move(options));
    auto memory = MemoryRegion::allocate_on_gpu(gpu_, 0, kSize).value();
    auto made = fabric.register_memory(std::move(memory));
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    local_ = std::move(made).value();
    const Bytes descriptor = local_->at(0)->descriptor();
    EXPECT_EQ(std::to_integer<int>(descriptor[kPlaceOfFlags]), kind.flags);
    gpu_->hide();
    key_ = name + "/";
    const auto publish = [&](const std::string& what, const Bytes& bytes) {
      const std::string key = key_ + what + std::to_string(fabric.rank().value());
      EXPECT_TRUE(fabric.bootstrap().publish(key, bytes).is_ok());
    };
    publish("", local_->descriptor());
    remote_ = import([](Bytes&) {});
    sync(fabric, name);
  }

  // The other rank's region, imported by a descriptor that was changed.
  std::unique_ptr<RemoteRegion> import(const Change& change) {
    const int peer = 1 - fabric_.rank().value();
    Bytes offer =
        fabric_.bootstrap()
            .lookup(key_ + std::to_string(peer), timeout_factor() * std::chrono::seconds(30))
            .value();
    change(offer);
    auto made = fabric_.import_region(Rank(peer), offer);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return std::move(made).value();
  }

  FakeGpu& gpu() { return *gpu_; }
  LocalRegion& local() { return *local_; }
  RemoteRegion& remote() { return *remote_; }
  std::span<std::byte> contents(std::size_t offset = 0, std::size_t size = kSize) {
    return gpu_->contents(local_->data() + offset, size);
  }

 private:
  Fabric& fabric_;
  std::shared_ptr<FakeGpu> gpu_;
  std::string key_;
  std::unique_ptr<LocalRegion> local_;
  std::unique_ptr<RemoteRegion> remote_;
};

void run(const RankBody& body) {
  run_ranks({.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}}, body);
}

// Connections are accepted by progress. After this, rank 0 needs no progress of rank 1 to connect.
void connect(Fabric& fabric, Exposed& host) {
  if (fabric.rank() == Rank(0)) {
    EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                  return host.data(1).flush(Visibility::kRemote, c);
                }).is_ok());
  }
  sync(fabric, "connected");
}

// A time in which one rank makes no progress, and the other rank knows it.
class Stall {
 public:
  // Lasts until the other rank ends it, but at most for the limit.
  void endure(Duration limit) {
    has_begun_ = true;
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!is_over_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    is_over_ = true;
  }
  void await(Fabric& fabric) {
    EXPECT_TRUE(progress_until(fabric, [&] { return has_begun_.load(); }));
  }
  void end() { is_over_ = true; }
  bool is_over() const { return is_over_; }

 private:
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> is_over_{false};
};

class VerbsGpuTest : public ::testing::TestWithParam<std::pair<Kind, Kind>> {
 protected:
  // This rank's kind of memory: rank 0 sends from one kind into the other.
  static const Kind& kind(const Fabric& fabric) {
    return fabric.rank() == Rank(0) ? GetParam().first : GetParam().second;
  }
};

// The bytes that a notification announces are in the GPU's memory when it is seen.
TEST_P(VerbsGpuTest, NotificationsFollowTheirBytes) {
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 2);
    OnGpu memory(fabric, kind(fabric), "gpu");
    std::uint64_t round = 0;
    for (const std::size_t size : {1U, 8U, 64U, 100U, 4096U, 65'537U}) {
      for (const bool is_one_operation : {true, false}) {
        ++round;
        const std::size_t offset = 3 * round;
        if (fabric.rank() == Rank(1)) {
          ASSERT_TRUE(await_cell(fabric, host.cell(0), round));
          EXPECT_TRUE(is_filled(memory.contents(offset, size), round)) << size;
          ASSERT_TRUE(complete(fabric, [&](Completion* c) {
                        return host.data(0).notify(notification(host.cell_at(0, 1), round), c);
                      }).is_ok());
          continue;
        }
        fill(memory.contents(offset, size), round);
        const auto from = memory.local().slice(offset, size).value();
        const auto to = memory.remote().slice(offset, size).value();
        Notification announced = notification(host.cell_at(1, 0), round);
        announced.length = static_cast<std::uint32_t>(size);
        const Status status = complete(fabric, [&](Completion* c) {
          if (is_one_operation) return host.data(1).put_notify(from, to, announced, c);
          const Status put = host.data(1).put(from, to, nullptr);
          return put.is_ok() ? post(fabric, [&] { return host.data(1).notify(announced, c); })
                             : put;
        });
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        // The source may be changed now.
        fill(memory.contents(offset, size), 99);
        ASSERT_TRUE(await_cell(fabric, host.cell(1), round));
      }
    }
    sync(fabric, "done");
    const int flushes = memory.gpu().flushes();
    const bool is_flushed = kind(fabric).flags == kFlushed && fabric.rank() == Rank(1);
    EXPECT_EQ(flushes, is_flushed ? 12 : 0);
    EXPECT_EQ(memory.gpu().copies(), kind(fabric).flags == kStaged ? 12 : 0);
  });
}

// More puts than the queue holds, each with a notification. In the end all bytes are there.
TEST_P(VerbsGpuTest, ManyPutsKeepTheirOrder) {
  constexpr std::size_t kPart = 64;
  constexpr std::uint64_t kPuts = 1000;
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    OnGpu memory(fabric, kind(fabric), "gpu");
    if (fabric.rank() == Rank(0)) {
      for (std::uint64_t i = 1; i <= kPuts; ++i) {
        const std::size_t offset = kPart * i;
        fill(memory.contents(offset, kPart), i);
        EXPECT_TRUE(post(fabric, [&] {
                      return host.data(1).put_notify(memory.local().slice(offset, kPart).value(),
                                                     memory.remote().slice(offset, kPart).value(),
                                                     notification(host.cell_at(1, 0), i), nullptr);
                    }).is_ok());
      }
      sync(fabric, "done");
      return;
    }
    std::uint64_t checked = 0;
    const bool is_complete = progress_until(fabric, [&] {
      for (const std::uint64_t seen = fabric.board().sequence(host.cell(0)); checked < seen;) {
        ++checked;
        EXPECT_TRUE(is_filled(memory.contents(kPart * checked, kPart), checked)) << checked;
      }
      return checked == kPuts;
    });
    EXPECT_TRUE(is_complete) << checked;
    sync(fabric, "done");
  });
}

// The peer can see the bytes when the flush has completed, which does not happen before the peer
// has taken them.
TEST_P(VerbsGpuTest, ARemoteFlushMeansVisible) {
  Stall stall;
  run([&](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    OnGpu memory(fabric, kind(fabric), "gpu");
    connect(fabric, host);
    if (fabric.rank() == Rank(1)) {
      // Only for a short time: if the network breaks the connection now, both ends must renew it.
      stall.endure(std::chrono::seconds(2));
      sync(fabric, "flushed");
      EXPECT_TRUE(is_filled(memory.contents(), 5));
      return;
    }
    stall.await(fabric);
    fill(memory.contents(), 5);
    Lane& lane = host.data(1);
    Completion put;
    Completion flushed;
    ASSERT_TRUE(post(fabric, [&] {
                  return lane.put(memory.local().whole(), memory.remote().whole(), &put);
                }).is_ok());
    ASSERT_TRUE(post(fabric, [&] { return lane.flush(Visibility::kRemote, &flushed); }).is_ok());
    if (GetParam().second.flags != kDirect) {
      // Long enough for a flush that does not wait to complete.
      const TimePoint until = fabric.clock().now() + std::chrono::milliseconds(300);
      while (fabric.clock().now() < until) fabric.progress();
      EXPECT_TRUE(stall.is_over() || !flushed.is_done()) << "the bytes were not copied to the GPU";
    }
    stall.end();
    ASSERT_TRUE(progress_until(fabric, [&] { return put.is_done() && flushed.is_done(); }));
    EXPECT_TRUE(put.status().is_ok()) << put.status().to_string();
    EXPECT_TRUE(flushed.status().is_ok()) << flushed.status().to_string();
    sync(fabric, "flushed");
  });
}

TEST_P(VerbsGpuTest, TheHostsMemoryIsTheOtherEnd) {
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    OnGpu memory(fabric, kind(fabric), "gpu");
    const int peer = 1 - fabric.rank().value();
    const auto put = [&](transport::LocalSlice from, transport::RemoteSlice to) {
      const Status status =
          complete(fabric, [&](Completion* c) { return host.data(peer).put(from, to, c); });
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                    return host.data(peer).flush(Visibility::kRemote, c);
                  }).is_ok());
    };
    fill(memory.contents(), 1);
    if (fabric.rank() == Rank(0)) put(memory.local().whole(), host.at(1).slice(0, kSize).value());
    sync(fabric, "put to the host");
    if (fabric.rank() == Rank(1)) {
      EXPECT_TRUE(is_filled(host.local().memory()->bytes().first(kSize), 1));
      fill(host.local().memory()->bytes().first(kSize), 2);
      put(host.local().slice(0, kSize).value(), memory.remote().whole());
    }
    sync(fabric, "put to the GPU");
    EXPECT_TRUE(fabric.rank() == Rank(1) || is_filled(memory.contents(), 2));
    // A get into GPU memory from host memory.
    if (fabric.rank() == Rank(0)) {
      EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                    fill(memory.contents(), 7);
                    return host.data(1).reads()->get(host.at(1).slice(0, kSize).value(),
                                                     memory.local().whole(), c);
                  }).is_ok());
      EXPECT_TRUE(is_filled(memory.contents(), 2));
    }
    sync(fabric, "got");
  });
}

TEST_P(VerbsGpuTest, GetsAndAtomicsNeedTheMemoryItself) {
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    OnGpu memory(fabric, kind(fabric), "gpu");
    fill(memory.contents(), 10 + fabric.rank().index());
    sync(fabric, "filled");
    if (fabric.rank() == Rank(0)) {
      Lane& lane = host.data(1);
      const Status got = complete(fabric, [&](Completion* c) {
        return lane.reads()->get(memory.remote().whole(), memory.local().whole(), c);
      });
      const Status added = complete(fabric, [&](Completion* c) {
        return lane.atomics()->fetch_add(memory.remote().slice(8, 8).value(), 0, nullptr, c);
      });
      if (GetParam().second.flags == kStaged) {
        for (const Status& status : {got, added}) {
          EXPECT_EQ(status.code(), Code::kUnavailable);
          EXPECT_NE(status.message().find("staged"), std::string_view::npos) << status.to_string();
        }
      } else {
        EXPECT_TRUE(got.is_ok()) << got.to_string();
        EXPECT_TRUE(added.is_ok()) << added.to_string();
        EXPECT_TRUE(is_filled(memory.contents(), 11));
      }
    }
    sync(fabric, "done");
  });
}

// An operation that the device refuses reports its error and announces nothing. Valid ones
// continue.
TEST_P(VerbsGpuTest, ARefusedPutAnnouncesNothing) {
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 2);
    OnGpu memory(fabric, kind(fabric), "gpu");
    if (fabric.rank() == Rank(0)) {
      // The key precedes the flags.
      const auto forged = memory.import([&](Bytes& offer) {
        // Only the empty reasons of other transports, a number, follow what verbs has to say.
        const std::size_t own = memory.local().at(0)->descriptor().size();
        offer[offer.size() - sizeof(std::uint32_t) - own + kPlaceOfFlags - 1] ^= std::byte{0x5a};
      });
      Lane& lane = host.data(1);
      const auto here = memory.local().slice(0, 64).value();
      const Status refused = complete(fabric, [&](Completion* c) {
        return lane.put_notify(here, forged->slice(0, 64).value(),
                               notification(host.cell_at(1, 1), 1), c);
      });
      EXPECT_EQ(refused.code(), Code::kNotFound) << refused.to_string();
      EXPECT_TRUE(
          complete(fabric, [&](Completion* c) { return lane.flush(Visibility::kRemote, c); })
              .is_ok())
          << "told twice";
      fill(memory.contents(0, 64), 4);
      EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                    return lane.put_notify(here, memory.remote().slice(0, 64).value(),
                                           notification(host.cell_at(1, 0), 1), c);
                  }).is_ok());
    } else {
      ASSERT_TRUE(await_cell(fabric, host.cell(0), 1));
      EXPECT_TRUE(is_filled(memory.contents(0, 64), 4));
      EXPECT_EQ(fabric.board().sequence(host.cell(1)), 0u) << "what was refused announced itself";
    }
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, VerbsGpuTest,
                         ::testing::Values(std::pair{kNoWayIn, kNoWayIn}, std::pair{kOpen, kOpen},
                                           std::pair{kOld, kOld}, std::pair{kOpen, kNoWayIn},
                                           std::pair{kNoWayIn, kOld}),
                         [](const auto& one) {
                           return std::string(one.param.first.name) + "To" + one.param.second.name;
                         });

// Bytes that cannot be copied to the GPU are never announced, and the sender gets an error.
TEST(VerbsGpuFaultTest, ACopyThatFailsEndsTheLane) {
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 2);
    OnGpu memory(fabric, kNoWayIn, "gpu");
    if (fabric.rank() == Rank(1)) {
      memory.gpu().options().copying = Status(Code::kIoError, "the GPU fell off the bus");
      sync(fabric, "broken");
      // A notification of the other lane.
      ASSERT_TRUE(await_cell(fabric, host.cell(1), 1));
      EXPECT_EQ(fabric.board().sequence(host.cell(0)), 0u);
      sync(fabric, "done");
      return;
    }
    sync(fabric, "broken");
    Lane& lane = host.data(1);
    EXPECT_TRUE(post(fabric, [&] {
                  return lane.put_notify(memory.local().slice(0, 64).value(),
                                         memory.remote().slice(0, 64).value(),
                                         notification(host.cell_at(1, 0), 1), nullptr);
                }).is_ok());
    const Status flushed =
        complete(fabric, [&](Completion* c) { return lane.flush(Visibility::kRemote, c); });
    EXPECT_EQ(flushed.code(), Code::kPeerDead) << flushed.to_string();
    EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                  return host.link(1).control().notify(notification(host.cell_at(1, 1), 1), c);
                }).is_ok());
    sync(fabric, "done");
  });
}

// If a device writes where the GPU sees it at once, the peer's CPU need not take part. This needs a
// network that breaks no connection, because both ends must renew it.
TEST(VerbsGpuFaultTest, ADirectPutNeedsNoProgressOfThePeer) {
  Stall stall;
  run([&](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    OnGpu memory(fabric, kOpen, "gpu");
    connect(fabric, host);
    if (fabric.rank() == Rank(1)) {
      stall.endure(timeout_factor() * std::chrono::seconds(60));
    } else {
      stall.await(fabric);
      fill(memory.contents(), 5);
      const Status put = complete(fabric, [&](Completion* c) {
        return host.data(1).put(memory.local().whole(), memory.remote().whole(), c);
      });
      ASSERT_TRUE(put.is_ok()) << put.to_string();
      const Status flushed = complete(
          fabric, [&](Completion* c) { return host.data(1).flush(Visibility::kRemote, c); });
      EXPECT_TRUE(flushed.is_ok()) << flushed.to_string();
      stall.end();
    }
    sync(fabric, "flushed");
    EXPECT_TRUE(fabric.rank() == Rank(0) || is_filled(memory.contents(), 5));
  });
}

// rdma_rxe does not support dma-bufs.
TEST(VerbsGpuFaultTest, AForcedWayThatDoesNotWorkIsAnError) {
  const auto configure = [](Config& config) { config.verbs_gpu = VerbsGpu::kDmaBuf; };
  run_ranks(
      {.kind = PeerKind::kThreads, .size = 1, .killed = {}, .configure = configure},
      [](Fabric& fabric) {
        const auto gpu = std::make_shared<FakeGpu>();
        const Status status =
            fabric.register_memory(MemoryRegion::allocate_on_gpu(gpu, 0, kSize).value()).status();
        EXPECT_EQ(status.code(), Code::kUnavailable);
        EXPECT_NE(status.message().find("does not support dma-bufs"), std::string_view::npos)
            << status.to_string();
        EXPECT_NE(status.message().find("DUNLIN_VERBS_GPU"), std::string_view::npos);
      });
}

// The memory is released when no peer can write there any more, not before.
TEST(VerbsGpuFaultTest, RegisteredMemoryOutlivesItsRegion) {
  const auto gpu = std::make_shared<FakeGpu>();
  gpu->options().is_registrable = true;
  run_ranks(
      {.kind = PeerKind::kThreads, .size = 1, .killed = {}, .configure = {}}, [&](Fabric& fabric) {
        auto region = fabric.register_memory(MemoryRegion::allocate_on_gpu(gpu, 0, kSize).value());
        ASSERT_TRUE(region.is_ok()) << region.status().to_string();
        region.value().reset();
        EXPECT_EQ(gpu->allocations(), 1);
      });
  EXPECT_EQ(gpu->allocations(), 0);
}

}  // namespace
}  // namespace dunlin::testing
