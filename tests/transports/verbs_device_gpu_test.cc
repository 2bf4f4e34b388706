// Flushes of the verbs transport into GPU memory that a device reaches directly, on a made-up
// device and fake GPUs.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_gpu.h"
#include "tests/transports/verbs_device.h"
#include "transports/verbs/path/gpu_writes.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::Visibility;

constexpr std::size_t kSize = 8192;

// Both ranks have regions on their GPUs 0 and 1, which the device reaches directly.
class VerbsDeviceGpuTest : public VerbsDeviceTestBase {
 protected:
  static constexpr int kGpus = 2;

  struct OnGpu {
    std::shared_ptr<FakeGpu> driver;
    std::unique_ptr<transport::LocalRegion> local[kGpus];
    std::unique_ptr<transport::RemoteRegion> remote[kGpus];  // the other rank's

    std::span<std::byte> contents(int gpu) { return driver->contents(local[gpu]->data(), kSize); }
  };

  void SetUp() override {
    FakeVerbs::Options options;
    options.gpu_memory = [this](std::uint64_t address, std::size_t size) {
      return find(address, size);
    };
    make(std::move(options));
  }

  void expose(Fabric& fabric, OnGpu& memory, const std::string& name) {
    FakeGpu::Options options;
    options.devices = kGpus;
    options.is_registrable = true;
    memory.driver = std::make_shared<FakeGpu>(std::move(options));
    const int own = fabric.rank().value();
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      auto bytes = MemoryRegion::allocate_on_gpu(memory.driver, gpu, kSize).value();
      const std::scoped_lock lock(mutex_);
      places_.push_back({reinterpret_cast<std::uint64_t>(bytes->data()), kGpus * own + gpu,
                         memory.driver->contents(bytes->data(), kSize).data()});
      memory.local[gpu] = fabric.register_memory(std::move(bytes)).value();
      EXPECT_TRUE(
          fabric.bootstrap()
              .publish(name + std::to_string(kGpus * own + gpu), memory.local[gpu]->descriptor())
              .is_ok());
    }
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const auto offer = fabric.bootstrap().lookup(name + std::to_string(kGpus * (1 - own) + gpu),
                                                   timeout_factor() * std::chrono::seconds(30));
      memory.remote[gpu] = fabric.import_region(Rank(1 - own), offer.value()).value();
    }
  }

 private:
  struct Place {
    std::uint64_t address;
    int gpu;
    std::byte* bytes;
  };

  std::optional<FakeVerbs::GpuPlace> find(std::uint64_t address, std::size_t size) {
    const std::scoped_lock lock(mutex_);
    for (const Place& place : places_) {
      if (address >= place.address && address + size <= place.address + kSize)
        return FakeVerbs::GpuPlace{place.gpu, place.bytes + (address - place.address)};
    }
    return std::nullopt;
  }

  std::mutex mutex_;
  std::vector<Place> places_;
};

// The bytes of puts are held on their way to a GPU until something is read there. A flush that
// reads host memory only completes before they have arrived.
TEST_F(VerbsDeviceGpuTest, AFlushBringsTheBytesIntoTheGpu) {
  for (const std::int64_t depth : {2, 128}) {
    configure_ = [&](Config& config) { config.verbs_queue_depth = depth; };
    const std::string turn = std::to_string(depth);
    run([&](Fabric& fabric) {
      Exposed host(fabric, "host" + turn, kSize, 1);
      OnGpu memory;
      expose(fabric, memory, "gpu" + turn + "/");
      std::uint64_t seed = 0;
      // One GPU, the other, and both in turns; one put, and several.
      for (const std::vector<int>& gpus :
           {std::vector{0}, {1}, {0, 1}, {1, 0, 1, 0}, {0, 0, 1, 1}, {0, 1, 1, 1, 0}}) {
        ++seed;
        if (fabric.rank() == Rank(0)) {
          for (const int gpu : gpus) {
            fill(host.local().memory()->bytes(), seed + 100 * static_cast<unsigned>(gpu));
            const auto from = host.local().slice(0, kSize).value();
            const auto to = memory.remote[gpu]->slice(0, kSize).value();
            const Status status =
                complete(fabric, [&](Completion* c) { return host.data(1).put(from, to, c); });
            EXPECT_TRUE(status.is_ok()) << status.to_string();
          }
          EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                        return host.data(1).flush(Visibility::kRemote, c);
                      }).is_ok());
          sync(fabric, turn + "flushed" + std::to_string(seed));
        } else {
          sync(fabric, turn + "flushed" + std::to_string(seed));
          for (const int gpu : std::set<int>(gpus.begin(), gpus.end())) {
            EXPECT_TRUE(is_filled(memory.contents(gpu), seed + 100 * static_cast<unsigned>(gpu)))
                << "put number " << seed << " into GPU " << gpu << ", depth " << depth;
          }
        }
        sync(fabric, turn + "checked" + std::to_string(seed));
      }
    });
  }
}

// The owner may give the memory up once it has been told of the bytes. What the sender still reads
// there is refused, and that is nobody's error.
TEST_F(VerbsDeviceGpuTest, AFlushOutlivesTheMemoryThatWasWritten) {
  run([&](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    OnGpu memory;
    expose(fabric, memory, "gpu/");
    if (fabric.rank() == Rank(0)) {
      const auto from = host.local().slice(0, kSize).value();
      const auto to = memory.remote[0]->slice(0, kSize).value();
      EXPECT_TRUE(
          complete(fabric, [&](Completion* c) { return host.data(1).put(from, to, c); }).is_ok());
    }
    sync(fabric, "put");
    // The registration is gone at once, without a word to rank 0.
    if (fabric.rank() == Rank(1)) {
      const std::uint64_t address = reinterpret_cast<std::uint64_t>(memory.local[0]->data());
      device_.forget(address);
    }
    sync(fabric, "given up");
    if (fabric.rank() == Rank(0)) {
      const Status status = complete(
          fabric, [&](Completion* c) { return host.data(1).flush(Visibility::kRemote, c); });
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    sync(fabric, "flushed");
  });
}

TEST(GpuWrites, RemembersOnePlace) {
  transport::verbs::GpuWrites writes;
  EXPECT_FALSE(writes.is_at_another(0));
  EXPECT_FALSE(writes.take());
  writes.note(3, {1000, 5});
  writes.note(3, {2000, 6});
  EXPECT_FALSE(writes.is_at_another(3));
  EXPECT_TRUE(writes.is_at_another(0));
  const auto place = writes.take();
  ASSERT_TRUE(place);
  EXPECT_EQ(place->address, 2000u);
  EXPECT_EQ(place->key, 6u);
  EXPECT_FALSE(writes.take());
  EXPECT_FALSE(writes.is_at_another(0));
}

}  // namespace
}  // namespace dunlin::testing
