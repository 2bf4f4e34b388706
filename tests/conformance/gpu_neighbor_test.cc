// Averages with neighbors on the memory of a GPU, over shm, on a GPU or on the stand-in for its
// driver: they have the bits that they have on host memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "collectives/graph/generators.h"
#include "collectives/neighbor/gpu_work.h"
#include "tests/collectives/reduce_operands.h"
#include "tests/conformance/gpu_neighbor.h"

namespace dunlin::testing {
namespace {

using collective::DataType;
using collective::WeightedRank;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

// Neighbors of this rank in a random graph that all ranks draw alike. Some graphs have uniform
// weights.
void draw_neighbors(NeighborCall& call, const Fabric& fabric, std::mt19937_64& random) {
  call.sources.clear();
  call.destinations.clear();
  const bool is_uniform = random() % 3 == 0;
  std::uniform_real_distribution<double> weights(-1, 1);
  call.self_weight = weights(random);
  for (int from = 0; from < fabric.size(); ++from) {
    for (int to = 0; to < fabric.size(); ++to) {
      const bool is_edge = random() % 3 != 0;
      const double pull = is_uniform ? 1 : weights(random);
      const double push = is_uniform ? 1 : weights(random);
      if (from == to || !is_edge) continue;
      if (fabric.rank() == Rank(to)) call.sources.push_back({Rank(from), pull});
      if (fabric.rank() == Rank(from)) call.destinations.push_back({Rank(to), push});
    }
  }
  if (!is_uniform) return;
  call.self_weight = 1.0 / static_cast<double>(call.sources.size() + 1);
  for (WeightedRank& source : call.sources) source.weight = call.self_weight;
}

class GpuNeighborTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void run(int size, const RankBody& body) { run_gpu_ranks(kFake, GetParam(), size, body); }
};

void compare_with_host(Fabric& fabric) {
  const auto host = make_exchange(fabric, std::nullopt);
  const auto gpu = make_exchange(fabric, 0);
  if (kFake != nullptr) kFake->delay_us = 100;
  std::mt19937_64 common(7);
  std::mt19937_64 own(static_cast<std::uint64_t>(fabric.rank().value()));
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                                 DataType::kBfloat16};
  // None, one, within a slot, a few slots, many rounds of all slots.
  for (const std::size_t count : {0u, 1u, 77u, 3000u, 20001u}) {
    for (const DataType type : kTypes) {
      const bool is_in_place = common() % 2 == 0;
      const std::size_t size = count * size_of(type);
      std::vector<std::byte> input(size);
      collective::reference::fill_operands(type, own, input.data(), count);
      NeighborCall call{.name = "compared", .count = count, .type = type};
      draw_neighbors(call, fabric, common);
      std::vector<std::byte> expected(size);
      call.input = input.data();
      call.output = expected.data();
      ASSERT_TRUE(host->run(call).is_ok());
      const Vector from(size);
      const Vector to(size);
      from.write(input);
      call.input = from.data();
      call.output = is_in_place ? from.data() : to.data();
      const Status status = gpu->run(call);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      const std::vector<std::byte> found = (is_in_place ? from : to).read(size);
      for (std::size_t i = 0; i < size; i += size_of(type)) {
        // Which NaN a weighted average stores is not defined.
        if (collective::reference::is_nan(type, &found[i]) &&
            collective::reference::is_nan(type, &expected[i]))
          continue;
        ASSERT_TRUE(std::equal(&found[i], &found[i] + size_of(type), &expected[i]))
            << count << " of " << to_string(type) << ", in place " << is_in_place << ", byte " << i;
      }
    }
  }
  sync(fabric, "all are done");
}

TEST_P(GpuNeighborTest, HasTheBitsOfHostMemory) {
  for (const int size : {1, 2, 4}) run(size, compare_with_host);
}

// One launch for all sources, and no copy of this rank's part.
TEST_P(GpuNeighborTest, AnAverageIsOneLaunch) {
  if (kFake == nullptr) GTEST_SKIP() << "counts what the stand-in sees";
  run(4, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric, 0);
    const Vector input(kSlot);
    const Vector output(kSlot);
    input.write(std::vector<std::byte>(kSlot, std::byte{1}));
    NeighborCall call{.input = input.data(), .output = output.data(), .count = kSlot / 4};
    for (int rank = 0; rank < fabric.size(); ++rank) {
      if (fabric.rank() == Rank(rank)) continue;
      call.sources.push_back({Rank(rank), 0.25});
      call.destinations.push_back({Rank(rank)});
    }
    call.self_weight = 0.25;
    sync(fabric, "written");
    const std::uint64_t launches = kFake->launches;
    const std::uint64_t copies = kFake->copies;
    sync(fabric, "counted");
    ASSERT_TRUE(exchange->run(call).is_ok());
    EXPECT_EQ(output.read(kSlot), std::vector<std::byte>(kSlot, std::byte{1}));
    sync(fabric, "averaged");
    // Ranks that are threads have one stand-in. Each rank also reads its output.
    const std::uint64_t ranks = GetParam() == PeerKind::kThreads ? 4 : 1;
    EXPECT_EQ(kFake->launches - launches, ranks);
    EXPECT_EQ(kFake->copies - copies, ranks * (3 + 1));
    sync(fabric, "all are done");
  });
}

// Many calls at once, of several chunks each, which every rank starts in another order, so that
// chunks of one call are in the way of those of others.
TEST_P(GpuNeighborTest, CallsInProgressMayBeStartedInAnyOrder) {
  run(3, [](Fabric& fabric) {
    constexpr std::size_t kCalls = 12;
    constexpr std::size_t kCount = 5000;
    const auto exchange = make_exchange(fabric, 0);
    if (kFake != nullptr) kFake->delay_us = 50;
    std::mt19937_64 own(static_cast<std::uint64_t>(fabric.rank().value()) + 1);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::size_t> order(kCalls);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), own);
      std::vector<std::string> names;
      std::vector<std::unique_ptr<Vector>> memory;
      for (std::size_t i = 0; i < kCalls; ++i) {
        names.push_back(fmt::format("call {}", i));
        const std::vector<float> values(
            kCount, static_cast<float>(10 * i + static_cast<std::size_t>(fabric.rank().value())));
        const auto bytes = std::as_bytes(std::span(values));
        memory.push_back(std::make_unique<Vector>(bytes.size()));
        memory.back()->write({bytes.begin(), bytes.end()});
      }
      std::vector<NeighborRequest> requests;
      for (const std::size_t i : order) {
        NeighborCall call{.name = names[i],
                          .input = memory[i]->data(),
                          .output = memory[i]->data(),
                          .count = kCount};
        for (int rank = 0; rank < fabric.size(); ++rank) {
          if (fabric.rank() == Rank(rank)) continue;
          call.sources.push_back({Rank(rank)});
          call.destinations.push_back({Rank(rank)});
        }
        const auto request = exchange->start(call);
        ASSERT_TRUE(request.is_ok()) << request.status().to_string();
        requests.push_back(*request);
      }
      for (const NeighborRequest& request : requests) {
        const Status status = exchange->wait(request, std::chrono::seconds(60) * timeout_factor());
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      for (std::size_t i = 0; i < kCalls; ++i) {
        const std::vector<float> expected(kCount, static_cast<float>(3 * 10 * i + 3));
        const auto bytes = std::as_bytes(std::span(expected));
        ASSERT_EQ(memory[i]->read(bytes.size()), std::vector(bytes.begin(), bytes.end())) << i;
      }
    }
    sync(fabric, "all are done");
  });
}

// Rank 2 wants both calls of rank 0 and has asked for "first" first. Rank 1 makes its "first" only
// when its "second" has ended. So the chunks of rank 0's "first" fill the slots at rank 2, and have
// to be moved out of them before those of "second" can arrive.
TEST_P(GpuNeighborTest, ChunksThatWaitMakeRoom) {
  run(3, [](Fabric& fabric) {
    constexpr std::size_t kCount = 10 * kSlot / 4;
    const auto exchange = make_exchange(fabric, 0);
    const int self = fabric.rank().value();
    const Vector first(kCount * 4);
    const Vector second(kCount * 4);
    const auto fill = [&](const Vector& memory, float value) {
      const std::vector<float> values(kCount, value);
      const auto bytes = std::as_bytes(std::span(values));
      memory.write({bytes.begin(), bytes.end()});
    };
    fill(first, static_cast<float>(self + 1));
    fill(second, static_cast<float>(10 * self + 10));
    const auto start = [&](const char* name, const Vector& memory) {
      NeighborCall call{.name = name, .input = memory.data(), .output = memory.data()};
      call.count = kCount;
      if (self == 2) call.sources = {{Rank(0)}, {Rank(1)}};
      if (self != 2) call.destinations = {{Rank(2)}};
      return exchange->start(call).value();
    };
    const auto finish = [&](NeighborRequest request) {
      const Status status = exchange->wait(request, std::chrono::seconds(60) * timeout_factor());
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    };
    if (self == 1) {
      finish(start("second", second));
      finish(start("first", first));
    } else {
      const NeighborRequest requests[] = {start("first", first), start("second", second)};
      for (const NeighborRequest request : requests) finish(request);
    }
    if (self == 2) {
      for (const Vector* const memory : {&first, &second}) {
        const std::vector<float> expected(kCount, memory == &first ? 6.0F : 60.0F);
        const auto bytes = std::as_bytes(std::span(expected));
        EXPECT_EQ(memory->read(bytes.size()), std::vector(bytes.begin(), bytes.end()));
      }
    }
    sync(fabric, "all are done");
  });
}

TEST_P(GpuNeighborTest, MembersWithAndWithoutAGpuDoNotMix) {
  run(2, [](Fabric& fabric) {
    const bool has_gpu = fabric.rank() == Rank(1);
    NeighborOptions options;
    options.gpu = has_gpu ? std::optional(0) : std::nullopt;
    options.slot_bytes = kSlot;
    const auto exchange = NeighborExchange::create(fabric, options).value();
    const Vector memory(400);
    std::vector<float> values(100);
    NeighborCall call{.count = 100};
    call.input = call.output = has_gpu ? static_cast<void*>(memory.data()) : values.data();
    call.sources = call.destinations = {{Rank(has_gpu ? 0 : 1)}};
    const Status status = exchange->run(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(has_gpu ? "the peer are in host memory, those of this rank in "
                                              "GPU memory"
                                            : "the peer are in GPU memory, those of this rank in "
                                              "host memory"),
              std::string::npos)
        << status.to_string();
    sync(fabric, "done");
  });
}

TEST_P(GpuNeighborTest, MembersOfTwoGpus) {
  run(2, [](Fabric& fabric) {
    if (load_cuda_driver().value()->devices().size() < 2) GTEST_SKIP() << "needs two GPUs";
    const int device = fabric.rank().value();
    const auto exchange = make_exchange(fabric, device);
    constexpr std::size_t kCount = 7000;
    const std::vector<float> values(kCount, static_cast<float>(device + 1));
    const auto bytes = std::as_bytes(std::span(values));
    const Vector memory(bytes.size(), device);
    memory.write({bytes.begin(), bytes.end()});
    NeighborCall call{.input = memory.data(), .output = memory.data(), .count = kCount};
    call.sources = call.destinations = {{Rank(1 - device)}};
    const Status status = exchange->run(call);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    const std::vector<float> expected(kCount, 3);
    const auto wanted = std::as_bytes(std::span(expected));
    EXPECT_EQ(memory.read(wanted.size()), std::vector(wanted.begin(), wanted.end()));
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuNeighborTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

class GpuNeighbor : public ::testing::Test {
 protected:
  static void run(const RankBody& body) { run_gpu_ranks(kFake, PeerKind::kThreads, 1, body); }
};

TEST_F(GpuNeighbor, RefusesWhatItCannotTake) {
  run([](Fabric& fabric) {
    const auto exchange = make_exchange(fabric, 0);
    const Vector memory(4000);
    std::vector<float> host(1000);
    NeighborCall call{.input = memory.data(), .output = memory.data(), .count = 1000};
    const auto expect_refused = [&](const NeighborCall& wrong, const std::string& why) {
      const Status status = exchange->run(wrong);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << why;
      EXPECT_NE(status.message().find(why), std::string::npos) << status.to_string();
    };
    NeighborCall wrong = call;
    wrong.input = host.data();
    expect_refused(wrong,
                   "the input of 4000 bytes is in host memory (cuPointerGetAttribute does not "
                   "know it): this exchange averages memory of GPU 0");
    wrong = call;
    wrong.output = host.data();
    expect_refused(wrong, "the output of 4000 bytes is in host memory");
    wrong = call;
    wrong.count = 1001;
    expect_refused(wrong, "the input of 4004 bytes leaves its allocation");
    wrong = call;
    wrong.count = 10;
    wrong.output = memory.data() + 402;
    expect_refused(wrong, "the output of 40 bytes is not aligned to float32");
    wrong = call;
    wrong.type = DataType::kInt32;
    expect_refused(wrong, "int32");
    std::vector<Bytes> gathered;
    EXPECT_EQ(exchange->gather(call, gathered).code(), Code::kInvalidArgument);
    if (load_cuda_driver().value()->devices().size() > 1) {
      const Vector other(4000, 1);
      wrong = call;
      wrong.output = other.data();
      expect_refused(wrong, "the output of 4000 bytes is on GPU 1");
    }
    // As many sources need as many ranks, so this asks what start() asks.
    const auto work = collective::neighbor::GpuWork::create(fabric, 0).value();
    wrong = call;
    wrong.sources.resize(127);
    EXPECT_TRUE(work->check(wrong).is_ok());
    wrong.sources.resize(128);
    EXPECT_EQ(work->check(wrong).code(), Code::kInvalidArgument);
    EXPECT_TRUE(exchange->run(call).is_ok());
  });
}

TEST_F(GpuNeighbor, ManagedMemoryIsRefused) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  run([](Fabric& fabric) {
    const auto exchange = make_exchange(fabric, 0);
    const Vector memory(4000);
    kFake->is_managed = true;
    const NeighborCall call{.input = memory.data(), .output = memory.data(), .count = 1000};
    EXPECT_EQ(exchange->run(call).code(), Code::kUnavailable);
  });
}

TEST_F(GpuNeighbor, AMissingGpuIsAnError) {
  run([](Fabric& fabric) {
    NeighborOptions options;
    options.gpu = 99;
    EXPECT_EQ(NeighborExchange::create(fabric, options).status().code(), Code::kOutOfRange);
  });
}

// Transports that cannot access GPU memory say so.
TEST_F(GpuNeighbor, OtherTransportsRefuseTheMemory) {
  if (kFake != nullptr) kFake->reset();
  run_ranks({.kind = PeerKind::kThreads,
             .size = 2,
             .killed = {},
             .configure = [](Config& config) { config.transports = {"tcp"}; }},
            [](Fabric& fabric) {
              const auto exchange = make_exchange(fabric, 0);
              const Vector memory(400);
              NeighborCall call{.count = 100};
              call.input = call.output = memory.data();
              call.sources = call.destinations = {{Rank(1 - fabric.rank().value())}};
              const Status status = exchange->run(call);
              EXPECT_EQ(status.code(), Code::kUnavailable);
              EXPECT_NE(status.message().find("tcp: "), std::string::npos) << status.to_string();
            });
  if (kFake != nullptr) expect_nothing_left(*kFake);
}

}  // namespace
}  // namespace dunlin::testing
