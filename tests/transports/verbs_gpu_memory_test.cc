// The way in which GPU memory is registered, and its shadows, without an RDMA device: the verbs
// transport chooses for a fake GPU and a fake device that refuses what the test says.
#include "transports/verbs/memory/gpu_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_gpu.h"
#include "tests/support/ranks.h"
#include "transports/gpu_access.h"
#include "transports/verbs/memory/gpu_access.h"

namespace dunlin::transport::verbs {
namespace {

using dunlin::testing::FakeGpu;
using dunlin::testing::fill;
using dunlin::testing::is_filled;

constexpr std::size_t kSize = 65536;

// Keys stay null, because these tests do not use them.
class FakeRegistrar final : public GpuRegistrar {
 public:
  Status dma_bufs;  // whether it supports dma-bufs
  Status dma_buf;   // whether it registers this one
  Status gpu_addresses = Status(Code::kIoError, "ibv_reg_mr: Bad address");
  Status host_addresses;
  std::vector<std::string> asked;

  Status check_dma_buf() override {
    asked.emplace_back("dma-bufs?");
    return dma_bufs;
  }
  Result<std::unique_ptr<MemoryKey>> register_dma_buf(const DmaBuf& exported,
                                                      const MemoryRegion&) override {
    asked.emplace_back("dma-buf");
    EXPECT_TRUE(exported.fd.is_open());
    return answer(dma_buf);
  }
  Result<std::unique_ptr<MemoryKey>> register_addresses(const MemoryRegion& memory) override {
    const bool is_host = memory.kind() == MemoryKind::kHost;
    asked.emplace_back(is_host ? "shadow" : "addresses");
    return answer(is_host ? host_addresses : gpu_addresses);
  }

 private:
  static Result<std::unique_ptr<MemoryKey>> answer(const Status& status) {
    if (!status.is_ok()) return status;
    return std::unique_ptr<MemoryKey>();
  }
};

class GpuMemoryTest : public ::testing::Test {
 protected:
  // To be called once the options are set.
  Result<std::unique_ptr<GpuMemory>> create(VerbsGpu wanted = VerbsGpu::kAuto) {
    gpu_ = std::make_shared<FakeGpu>(options_);
    memory_ = MemoryRegion::allocate_on_gpu(gpu_, 0, kSize).value();
    return GpuMemory::create(registrar_, memory_, wanted, clock_, std::chrono::seconds(60));
  }
  GpuWay way(VerbsGpu wanted = VerbsGpu::kAuto) { return create(wanted).value()->way(); }
  std::span<std::byte> on_gpu() { return gpu_->contents(memory_->data(), kSize); }

  FakeGpu::Options options_;
  FakeRegistrar registrar_;
  ManualClock clock_;
  std::shared_ptr<FakeGpu> gpu_;
  std::shared_ptr<MemoryRegion> memory_;
};

const Status kLacking(Code::kUnavailable, "it lacks that");
using Asked = std::vector<std::string>;

TEST_F(GpuMemoryTest, ADmaBufComesFirst) {
  const auto made = create().value();
  EXPECT_EQ(made->way(), GpuWay::kDmaBuf);
  EXPECT_EQ(made->refusals(), "");
  EXPECT_FALSE(made->wants_landings());
  EXPECT_EQ(registrar_.asked, (Asked{"dma-bufs?", "dma-buf"}));
  EXPECT_EQ(made->target().memory, memory_);
}

TEST_F(GpuMemoryTest, ADriverThatExportsNothingIsNotAsked) {
  options_.dma_buf = kLacking;
  registrar_.gpu_addresses = Status::ok();
  EXPECT_EQ(way(), GpuWay::kPeerMemory);
  EXPECT_EQ(gpu_->exports(), 0);
  EXPECT_EQ(registrar_.asked, (Asked{"addresses"}));
}

TEST_F(GpuMemoryTest, ADeviceThatTakesNoDmaBufGetsTheAddresses) {
  registrar_.dma_bufs = kLacking;
  registrar_.gpu_addresses = Status::ok();
  EXPECT_EQ(way(), GpuWay::kPeerMemory);
  EXPECT_EQ(gpu_->exports(), 0);
}

TEST_F(GpuMemoryTest, AnExportThatFailsSelectsTheNextWay) {
  options_.exporting = kLacking;
  registrar_.gpu_addresses = Status::ok();
  EXPECT_EQ(way(), GpuWay::kPeerMemory);
}

TEST_F(GpuMemoryTest, ADmaBufThatIsRefusedSelectsTheNextWay) {
  registrar_.dma_buf = kLacking;
  registrar_.gpu_addresses = Status::ok();
  EXPECT_EQ(way(), GpuWay::kPeerMemory);
  EXPECT_EQ(registrar_.asked, (Asked{"dma-bufs?", "dma-buf", "addresses"}));
}

TEST_F(GpuMemoryTest, WhatNobodyRegistersIsStagedAndSaysWhy) {
  registrar_.dma_buf = kLacking;
  const auto made = create().value();
  EXPECT_EQ(made->way(), GpuWay::kStaging);
  EXPECT_TRUE(made->wants_landings());
  EXPECT_EQ(
      made->refusals(),
      "dma-buf: it lacks that; nvidia-peermem: no nvidia-peermem here: ibv_reg_mr: Bad address");
  EXPECT_EQ(made->target().memory->kind(), MemoryKind::kHost);
  EXPECT_NE(made->target().memory, made->local().memory);
  EXPECT_GE(made->target().memory->size(), kSize);
}

TEST_F(GpuMemoryTest, AGpuWhoseWritesNobodyCanOrderIsStaged) {
  options_.writes = GpuWrites::kUnordered;
  EXPECT_EQ(way(), GpuWay::kStaging);
  EXPECT_EQ(registrar_.asked, (Asked{"shadow", "shadow"}));
}

TEST_F(GpuMemoryTest, MemoryWhoseOperationsCantBeSynchronizedIsStaged) {
  options_.synchronizing = kLacking;
  EXPECT_EQ(way(), GpuWay::kStaging);
}

TEST_F(GpuMemoryTest, NothingAtAllIsAnErrorThatNamesEveryReason) {
  options_.dma_buf = Status(Code::kUnavailable, "reason one");
  options_.streams = Status(Code::kIoError, "reason three");
  registrar_.gpu_addresses = Status(Code::kIoError, "reason two");
  const Status status = create().status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  for (const char* const reason : {"GPU 0", "reason one", "reason two", "reason three"})
    EXPECT_NE(status.message().find(reason), std::string_view::npos) << status.to_string();
}

TEST_F(GpuMemoryTest, ShadowsThatCantBeRegisteredAreAnError) {
  options_.dma_buf = kLacking;
  registrar_.host_addresses = Status(Code::kResourceExhausted, "too much is locked");
  EXPECT_NE(create().status().message().find("too much is locked"), std::string_view::npos);
}

TEST_F(GpuMemoryTest, AForcedWayIsTheOnlyOneTried) {
  registrar_.gpu_addresses = Status::ok();
  EXPECT_EQ(way(VerbsGpu::kPeerMemory), GpuWay::kPeerMemory);
  EXPECT_EQ(way(VerbsGpu::kStaging), GpuWay::kStaging);
  EXPECT_EQ(way(VerbsGpu::kDmaBuf), GpuWay::kDmaBuf);
  registrar_.dma_bufs = kLacking;
  registrar_.asked.clear();
  const Status status = create(VerbsGpu::kDmaBuf).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("DUNLIN_VERBS_GPU"), std::string_view::npos);
  EXPECT_EQ(registrar_.asked, (Asked{"dma-bufs?"}));
}

TEST_F(GpuMemoryTest, DirectWritesAreFlushedWhereTheGpuNeedsIt) {
  options_.writes = GpuWrites::kNeedFlush;
  const auto made = create().value();
  EXPECT_TRUE(made->wants_landings());
  EXPECT_TRUE(made->fetch(0, kSize).is_ok());
  EXPECT_EQ(gpu_->flushes(), 0);
  EXPECT_TRUE(made->land(0, kSize).is_ok());
  EXPECT_EQ(gpu_->flushes(), 1);
  EXPECT_TRUE(made->deliver(0, kSize).is_ok());
  EXPECT_EQ(gpu_->flushes(), 2);
  EXPECT_EQ(gpu_->copies(), 0);
}

TEST_F(GpuMemoryTest, NoFlushWhereItIsNotNeeded) {
  const auto made = create().value();
  EXPECT_TRUE(made->land(0, kSize).is_ok());
  EXPECT_TRUE(made->deliver(0, kSize).is_ok());
  EXPECT_EQ(gpu_->flushes(), 0);
}

TEST_F(GpuMemoryTest, StagedBytesAreThereWhenTheCallReturns) {
  const auto made = create(VerbsGpu::kStaging).value();
  fill(on_gpu(), 1);
  ASSERT_TRUE(made->fetch(0, kSize).is_ok());
  EXPECT_TRUE(is_filled(made->local().memory->bytes().first(kSize), 1));
  fill(made->target().memory->bytes().first(kSize), 2);
  ASSERT_TRUE(made->land(0, kSize).is_ok());
  EXPECT_TRUE(is_filled(on_gpu(), 2));
  fill(made->local().memory->bytes().first(kSize), 3);
  ASSERT_TRUE(made->deliver(0, kSize).is_ok());
  EXPECT_TRUE(is_filled(on_gpu(), 3));
}

TEST_F(GpuMemoryTest, OnlyWhatWasWrittenIsCopied) {
  const auto made = create(VerbsGpu::kStaging).value();
  fill(on_gpu(), 1);
  const std::vector<std::byte> before(on_gpu().begin(), on_gpu().end());
  fill(made->target().memory->bytes().subspan(100, 50), 2);
  ASSERT_TRUE(made->land(100, 50).is_ok());
  EXPECT_TRUE(is_filled(on_gpu().subspan(100, 50), 2));
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 100, on_gpu().begin()));
  EXPECT_TRUE(std::equal(before.begin() + 150, before.end(), on_gpu().begin() + 150));
}

// Bytes that a peer has written do not change when the same range is the source of a put.
TEST_F(GpuMemoryTest, APutsBytesDoNotOverwriteArrivals) {
  const auto made = create(VerbsGpu::kStaging).value();
  fill(on_gpu(), 1);
  fill(made->target().memory->bytes().first(kSize), 2);
  ASSERT_TRUE(made->fetch(0, kSize).is_ok());
  ASSERT_TRUE(made->land(0, kSize).is_ok());
  EXPECT_TRUE(is_filled(on_gpu(), 2));
}

TEST_F(GpuMemoryTest, ALandingBeyondTheRegionIsRefused) {
  for (const VerbsGpu wanted : {VerbsGpu::kStaging, VerbsGpu::kDmaBuf}) {
    const auto made = create(wanted).value();
    for (const auto& [offset, size] : {std::pair<std::size_t, std::size_t>{kSize + 1, 0},
                                       {kSize - 8, 9},
                                       {8, SIZE_MAX},
                                       {SIZE_MAX, 8}}) {
      EXPECT_EQ(made->land(offset, size).code(), Code::kOutOfRange) << offset << " " << size;
    }
    EXPECT_TRUE(made->land(kSize, 0).is_ok());
  }
}

TEST_F(GpuMemoryTest, ACopyThatFailsIsAnErrorWithItsReason) {
  options_.copying = Status(Code::kIoError, "the GPU fell off the bus");
  const auto made = create(VerbsGpu::kStaging).value();
  for (const Status& status : {made->fetch(0, 8), made->land(0, 8), made->deliver(0, 8)}) {
    EXPECT_EQ(status.code(), Code::kIoError);
    EXPECT_NE(status.message().find("fell off the bus"), std::string_view::npos);
  }
}

// A manual clock would never reach the deadline. This one passes it by itself.
class HastyClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::seconds(1); }

 private:
  mutable TimePoint now_{};
};

TEST_F(GpuMemoryTest, ACopyThatNeverEndsIsReportedAtTheDeadline) {
  options_.polls_per_copy = -1;
  gpu_ = std::make_shared<FakeGpu>(options_);
  memory_ = MemoryRegion::allocate_on_gpu(gpu_, 0, kSize).value();
  const HastyClock clock;
  const auto made =
      GpuMemory::create(registrar_, memory_, VerbsGpu::kStaging, clock, std::chrono::seconds(5))
          .value();
  const Status status = made->fetch(0, 8);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("copying 8 bytes from GPU 0"), std::string_view::npos)
      << status.to_string();
}

TEST(GpuAccess, IsByDmaBufOrElseByNvidiaPeermem) {
  const FakeGpu both({.devices = 2, .peer_mapping = Status::ok()});
  EXPECT_EQ(find_gpu_access(Status::ok(), VerbsGpu::kAuto, both).value(), VerbsGpu::kDmaBuf);
  EXPECT_EQ(find_gpu_access(kLacking, VerbsGpu::kAuto, both).value(), VerbsGpu::kPeerMemory);
  // The device takes dma-bufs, and the GPU makes none.
  const FakeGpu no_dma_buf({.dma_buf = kLacking, .peer_mapping = Status::ok()});
  EXPECT_EQ(find_gpu_access(Status::ok(), VerbsGpu::kAuto, no_dma_buf).value(),
            VerbsGpu::kPeerMemory);
  EXPECT_EQ(find_gpu_access(Status::ok(), VerbsGpu::kDmaBuf, no_dma_buf).status().message(),
            "GPU 0: it lacks that");
  const Status neither = find_gpu_access(kLacking, VerbsGpu::kAuto, FakeGpu()).status();
  EXPECT_EQ(neither.code(), Code::kUnavailable);
  EXPECT_EQ(neither.message(),
            "dma-buf: GPU 0: it lacks that; nvidia-peermem: GPU 0: no nvidia-peermem here");
}

TEST(GpuAccess, IsNotDirectIfNobodyOrdersTheWrites) {
  const FakeGpu unordered({.peer_mapping = Status::ok(), .writes = GpuWrites::kUnordered});
  for (const VerbsGpu wanted : {VerbsGpu::kAuto, VerbsGpu::kDmaBuf, VerbsGpu::kPeerMemory})
    EXPECT_FALSE(find_gpu_access(Status::ok(), wanted, unordered).is_ok());
  EXPECT_TRUE(find_gpu_access(Status::ok(), VerbsGpu::kStaging, unordered).is_ok());
  const FakeGpu flushed({.writes = GpuWrites::kNeedFlush});
  EXPECT_TRUE(find_gpu_access(Status::ok(), VerbsGpu::kAuto, flushed).is_ok());
}

TEST(GpuAccess, IsWhatIsAskedFor) {
  const FakeGpu neither({.dma_buf = kLacking});
  for (const VerbsGpu wanted : {VerbsGpu::kStaging, VerbsGpu::kPeerMemory})
    EXPECT_EQ(find_gpu_access(kLacking, wanted, neither).value(), wanted);
}

TEST(GpuAccess, OfTransportsAndOfADeviceThatIsNotThere) {
  const FakeGpu gpu;
  Config config;
  EXPECT_EQ(transport::find_gpu_access("verbs", "no_such_device", config, gpu).code(),
            Code::kUnavailable);
  EXPECT_TRUE(transport::find_gpu_access("shm", "", config, gpu).is_ok());
  EXPECT_EQ(transport::find_gpu_access("tcp", "", config, gpu).message(),
            "tcp reaches host memory only");
}

}  // namespace
}  // namespace dunlin::transport::verbs
