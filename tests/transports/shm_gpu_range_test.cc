// Memory of a GPU that a program has put together from pieces (PyTorch's expandable segments), over
// the shm transport: what cannot be shared says so, errors leave nothing behind, and a peer keeps
// what it has mapped. shm_gpu_test.cc has the lanes.
#include <gtest/gtest.h>

#include "runtime/gpu/cuda_driver.h"
#include "runtime/gpu/ranges.h"
#include "tests/support/gpu_range.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

FakeCuda* const fake = use_gpu_library();

constexpr std::size_t kSize = 3 << 20;
constexpr std::size_t kBefore = 4096;  // bytes of the first piece

void run(const RankBody& body) {
  run_gpu_ranks(fake, PeerKind::kThreads, 1, body);
}

std::unique_ptr<transport::LocalRegion> registered(Fabric& fabric, const GpuRangeMemory& memory) {
  auto wrapped = MemoryRegion::wrap(memory.data(), kSize, load_cuda_driver().value());
  return fabric.register_memory(std::move(wrapped).value()).value();
}

TEST(ShmGpuRange, MemoryWithoutAHandleSaysWhatToDo) {
  run([](Fabric& fabric) {
    const GpuRangeMemory memory(kSize, kBefore, false);
    const auto region = registered(fabric, memory);
    const Status status = fabric.import_region(Rank(0), region->descriptor()).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("made without a handle for other processes"), std::string::npos)
        << status.to_string();
    EXPECT_NE(status.message().find("expandable_segments:False"), std::string::npos)
        << status.to_string();
  });
}

TEST(ShmGpuRange, ARegionThatWasDeregisteredIsNotFound) {
  run([](Fabric& fabric) {
    const GpuRangeMemory memory(kSize, kBefore);
    auto region = registered(fabric, memory);
    const Bytes descriptor = region->descriptor();
    EXPECT_EQ(region->descriptor(), descriptor) << "it is exported once";
    ASSERT_TRUE(fabric.import_region(Rank(0), descriptor).is_ok());
    region.reset();
    const Status status = fabric.import_region(Rank(0), descriptor).status();
    EXPECT_TRUE(status.is_error());
    EXPECT_NE(status.code(), Code::kInternal) << status.to_string();
  });
}

TEST(ShmGpuRange, DescriptorsThatWereCutOrChangedAreRefused) {
  run([](Fabric& fabric) {
    const GpuRangeMemory memory(kSize, kBefore);
    const auto region = registered(fabric, memory);
    const Bytes descriptor = region->descriptor();
    for (std::size_t size = 0; size < descriptor.size(); ++size) {
      const Bytes cut(descriptor.begin(), descriptor.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_TRUE(fabric.import_region(Rank(0), cut).status().is_error()) << size;
    }
    Bytes changed = descriptor;
    changed.back() = std::byte{0xff};  // the size of the last piece
    EXPECT_TRUE(fabric.import_region(Rank(0), changed).status().is_error());
  });
}

TEST(ShmGpuRange, WhatIsMappedOutlivesTheOwnersMemory) {
  if (fake == nullptr) GTEST_SKIP() << "reads the stand-in's memory";
  run([](Fabric& fabric) {
    auto memory = std::make_unique<GpuRangeMemory>(kSize, kBefore);
    const auto driver = load_cuda_driver().value();
    auto* const ranges = GpuRanges::of(*driver);
    ASSERT_NE(ranges, nullptr);
    *fake->contents(memory->data() + kBefore, 1) = std::byte{7};
    const auto exported = ranges->export_range(0, memory->data(), kSize).value();
    EXPECT_EQ(exported.sizes.size(), 3u);
    EXPECT_EQ(exported.offset, GpuRangeMemory::kPiece - kBefore);
    const auto mapped = ranges->map_range(0, exported.descriptors, exported.sizes).value();
    memory.reset();
    const std::byte* const data = mapped->data() + exported.offset;
    ASSERT_NE(fake->contents(data, kSize), nullptr) << "adjacent";
    EXPECT_EQ(*fake->contents(data + kBefore, 1), std::byte{7});
    sync(fabric, "done");
  });
}

TEST(ShmGpuRange, EveryCallOfTheDriverMayFail) {
  if (fake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  for (const char* name :
       {"cuMemRetainAllocationHandle", "cuMemGetAllocationPropertiesFromHandle",
        "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemAddressReserve",
        "cuMemMap", "cuMemSetAccess", "cuMemGetAddressRange"}) {
    for (const std::uint64_t call : {1, 2}) {
      run([&](Fabric& fabric) {
        const GpuRangeMemory memory(kSize, kBefore);
        const auto region = registered(fabric, memory);
        fake->failing_name = name;
        fake->failing_code = 999;
        fake->failing_call = call;
        const Status status = fabric.import_region(Rank(0), region->descriptor()).status();
        if (fake->failing_call == 0) {
          EXPECT_NE(status.message().find(name), std::string::npos) << status.to_string();
        }
        fake->failing_call = 0;
        EXPECT_TRUE(status.is_error() || call > 1) << name;
      });
    }
  }
}

// A rank hears at once that its peers could not open its memory, before it waits for them.
TEST(ShmGpuRange, MemoryThatTheDriverFailsToShareIsNotRegistered) {
  if (fake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  for (const char* const name :
       {"cuPointerGetAttribute", "cuMemGetAddressRange", "cuIpcGetMemHandle"}) {
    run([&](Fabric& fabric) {
      const auto driver = load_cuda_driver().value();
      fake->failing_name = name;
      fake->failing_code = 999;
      fake->failing_call = 1;
      const Status status = fabric.allocate_on_gpu(driver, 0, kSize).status();
      EXPECT_NE(status.message().find(name), std::string::npos) << status.to_string();
      EXPECT_EQ(fake->failing_call, 0u);
      EXPECT_TRUE(fabric.allocate_on_gpu(driver, 0, kSize).is_ok());
    });
  }
}

// Drivers before CUDA 11 have no such memory.
TEST(ShmGpuRange, AnOldDriverSaysSo) {
  if (fake == nullptr) GTEST_SKIP() << "loads a stand-in";
  const auto old = load_cuda_driver(built("tests/fake_cuda/libold_fake_cuda.so")).value();
  std::byte* const data = old->allocate(0, 100).value();
  const Status status = GpuRanges::of(*old)->export_range(0, data, 100).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("11.0 or newer"), std::string::npos) << status.to_string();
  old->free(0, data);
}

}  // namespace
}  // namespace dunlin::testing
