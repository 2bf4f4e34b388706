// One-sided transfers, called as NCCL calls the plugin, under each version of the interface, with
// memory of the host and of a GPU. Without a GPU, on the stand-in for CUDA's driver.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/bindings/nccl/one_sided_fixture.h"

namespace dunlin::testing {
namespace {

class NcclOneSided : public OneSidedTest {};

TEST_P(NcclOneSided, PutsAndSignalsReachAllRanks) {
  for (const auto& [kind, signal_kind] : {std::pair(Kind::kHost, Kind::kHost),
                                          {Kind::kAllocated, Kind::kAllocated},
                                          {Kind::kMapped, Kind::kUnshareable}}) {
    EXPECT_EQ(
        "",
        run_here(3,
                 [kind, signal_kind](Member& member, Cuda& cuda) {
                   const std::vector<std::size_t> sizes = {8, 0, 1, 4095, 1'000'003};
                   Slots slots(member, cuda, kind, signal_kind, sizes.back());
                   const auto me = static_cast<std::size_t>(member.rank.number);
                   std::uint64_t expected = 0;
                   for (const std::size_t size : sizes) {
                     const Block sent = pattern(size, size + me);
                     if (size != 0) slots.from.write(sent);
                     std::vector<void*> requests;
                     for (int to = 0; to < member.rank.size; ++to)
                       requests.push_back(member.put_signal(to, slots.source,
                                                            slots.slot_of(member.rank.number), size,
                                                            slots.signal, 1));
                     expected += static_cast<std::uint64_t>(member.rank.size);
                     member.advance_until([&] { return word_of(slots.signals) >= expected; },
                                          "a signal");
                     for (std::size_t rank = 0; rank < 3; ++rank) {
                       const Block all = slots.memory.read((rank + 1) * slots.slot);
                       REQUIRE(Block(all.end() - static_cast<std::ptrdiff_t>(slots.slot),
                                     all.end() - static_cast<std::ptrdiff_t>(slots.slot - size)) ==
                               pattern(size, size + rank));
                     }
                     for (void* const request : requests) member.wait(request);
                     member.rank.sync();
                   }
                   REQUIRE(word_of(slots.signals) == expected);
                   slots.remove();
                   REQUIRE(!member.has_failed());
                   member.close();
                   REQUIRE(warnings() == 0);
                 }))
        << "kind " << static_cast<int>(kind);
  }
}

// A signal is added behind all that was put before, by other calls, too.
TEST_P(NcclOneSided, ASignalComesBehindEarlierPuts) {
  for (const Kind kind : {Kind::kHost, Kind::kAllocated}) {
    EXPECT_EQ("", run_here(2,
                           [kind](Member& member, Cuda& cuda) {
                             constexpr std::size_t kPuts = 200, kSize = 3000;
                             Slots slots(member, cuda, kind, kind, kPuts * kSize);
                             for (std::size_t round = 1; round <= 3; ++round) {
                               const Block all = pattern(kPuts * kSize, round);
                               if (member.rank.number == 1) {
                                 slots.from.write(all);
                                 std::deque<void*> requests;
                                 for (std::size_t i = 0; i < kPuts; ++i) {
                                   requests.push_back(
                                       member.put(0, {slots.source.memory, i * kSize},
                                                  {slots.window.memory, i * kSize}, kSize));
                                 }
                                 // NCCL passes no memory when it only signals.
                                 requests.push_back(member.put_signal(0, {}, {}, 0, slots.signal, 7,
                                                                      abi::kSignalIncrement));
                                 for (void* const request : requests) member.wait(request);
                               } else {
                                 member.advance_until(
                                     [&] { return word_of(slots.signals) == round; }, "a signal");
                                 REQUIRE(slots.memory.read(all.size()) == all);
                               }
                               member.rank.sync();
                             }
                             slots.remove();
                             member.close();
                           }))
        << "kind " << static_cast<int>(kind);
  }
}

// All ranks add to the same words at the same time, of which there are more than in one round.
TEST_P(NcclOneSided, NoAdditionIsLost) {
  for (const Kind kind : {Kind::kHost, Kind::kAllocated}) {
    EXPECT_EQ("", run_here(3,
                           [kind](Member& member, Cuda& cuda) {
                             constexpr std::size_t kWords = 700;
                             constexpr std::uint64_t kTimes = 3;
                             Slots slots(member, cuda, kind, kind, 8);
                             std::deque<void*> requests;
                             for (std::uint64_t time = 0; time < kTimes; ++time) {
                               for (std::size_t i = 0; i < kWords; ++i) {
                                 for (int to = 0; to < member.rank.size; ++to)
                                   requests.push_back(member.put_signal(
                                       to, {}, {}, 0, {slots.signal.memory, i * kWord}, i + 1));
                               }
                             }
                             for (void* const request : requests) member.wait(request);
                             const auto ranks = static_cast<std::uint64_t>(member.rank.size);
                             std::vector<std::uint64_t> expected(kWords);
                             for (std::size_t i = 0; i < kWords; ++i)
                               expected[i] = (i + 1) * kTimes * ranks;
                             member.advance_until(
                                 [&] { return words_of(slots.signals, kWords) == expected; },
                                 "all additions");
                             // None comes twice.
                             member.rank.sync();
                             for (int i = 0; i < 3; ++i)
                               REQUIRE(member.calls.progress(member.context) == abi::kSuccess);
                             REQUIRE(words_of(slots.signals, kWords) == expected);
                             slots.remove();
                             member.close();
                           }))
        << "kind " << static_cast<int>(kind);
  }
}

TEST_P(NcclOneSided, GetsReadWhatOthersHave) {
  if (GetParam().first < 13) GTEST_SKIP() << "versions before 13 have no gets";
  // GPU memory that is copied through the host takes puts only.
  const char* const way = std::getenv("DUNLIN_VERBS_GPU");
  std::vector<Kind> kinds = {Kind::kHost};
  if (way == nullptr || std::string(way) != "staging") kinds.push_back(Kind::kAllocated);
  for (const Kind kind : kinds) {
    EXPECT_EQ("", run_here(3,
                           [kind](Member& member, Cuda& cuda) {
                             constexpr std::size_t kSize = 100'000;
                             Slots slots(member, cuda, kind, kind, kSize);
                             const auto me = static_cast<std::size_t>(member.rank.number);
                             slots.from.write(pattern(kSize, me));
                             member.rank.sync();
                             std::vector<void*> requests;
                             for (int from = 0; from < member.rank.size; ++from)
                               requests.push_back(
                                   member.get(from, slots.source, slots.slot_of(from), kSize));
                             for (void* const request : requests) member.wait(request);
                             void* flushed = &flushed;
                             REQUIRE(member.calls.flush(member.context, 0, slots.window.memory, 0,
                                                        &flushed) == abi::kSuccess);
                             REQUIRE(flushed == nullptr);
                             Block expected;
                             for (std::size_t rank = 0; rank < 3; ++rank) {
                               const Block part = pattern(kSize, rank);
                               expected.insert(expected.end(), part.begin(), part.end());
                             }
                             REQUIRE(slots.memory.read(3 * kSize) == expected);
                             slots.remove();
                             member.close();
                           }))
        << "kind " << static_cast<int>(kind);
  }
}

// NCCL registers on one thread while another one transfers, and has several groups.
TEST_P(NcclOneSided, GroupsAndThreadsDoNotDisturbOneAnother) {
  EXPECT_EQ(
      "", run_here(2, [](Member& first, Cuda& cuda) {
        Member second(first.rank, GetParam().first, GetParam().second);
        std::vector<std::unique_ptr<Slots>> slots;
        for (Member* const member : {&first, &second})
          slots.push_back(std::make_unique<Slots>(*member, cuda, Kind::kHost, Kind::kHost, 1000));
        constexpr std::uint64_t kPuts = 300;
        std::thread transfers([&] {
          const int peer = 1 - first.rank.number;
          for (std::uint64_t i = 0; i < kPuts; ++i) {
            for (const auto& each : slots)
              each->member.wait(
                  each->member.put_signal(peer, each->source, each->window, 1000, each->signal, 1));
          }
        });
        for (int i = 0; i < 20; ++i) {
          Block block(5000);
          void* const memory = second.add(block.data(), block.size(), abi::kPointerHost);
          REQUIRE(second.calls.deregister(second.group, memory) == abi::kSuccess);
        }
        transfers.join();
        for (const auto& each : slots) {
          each->member.advance_until([&] { return word_of(each->signals) == kPuts; },
                                     "the signals");
          each->remove();
        }
        second.close();
        first.close();
      }));
}

// NCCL's host code makes no calls while it waits for signals.
TEST_P(NcclOneSided, SignalsComeWithoutCallsOfTheirOwner) {
  for (const Kind kind : {Kind::kHost, Kind::kAllocated}) {
    EXPECT_EQ("", run_here(2,
                           [kind](Member& member, Cuda& cuda) {
                             Slots slots(member, cuda, kind, kind, 1000);
                             if (member.rank.number == 1) {
                               slots.from.write(pattern(1000, 1));
                               member.wait(member.put_signal(0, slots.source, slots.window, 1000,
                                                             slots.signal, 1));
                             } else {
                               until([&] { return word_of(slots.signals) == 1; }, "a signal");
                               REQUIRE(slots.memory.read(1000) == pattern(1000, 1));
                             }
                             slots.remove();
                             member.close();
                           }))
        << "kind " << static_cast<int>(kind);
  }
}

// What a rank puts into its own memory needs no other process to open it.
TEST_P(NcclOneSided, OwnMemoryOfAnyKindTakesPuts) {
  EXPECT_EQ("", run_here(1, [](Member& member, Cuda& cuda) {
              const std::vector<Kind> kinds = {Kind::kHost, Kind::kAllocated, Kind::kUnshareable};
              Buffer signals(cuda, Kind::kUnshareable, kPiece);
              const At signal{member.add(cleared(signals).data, signals.size, signals.type())};
              std::uint64_t expected = 0;
              for (const Kind from_kind : kinds) {
                for (const Kind to_kind : kinds) {
                  Buffer from(cuda, from_kind, kPiece), to(cuda, to_kind, kPiece);
                  const At source{member.add(from.data, from.size, from.type())};
                  const At target{member.add(cleared(to).data, to.size, to.type())};
                  const Block sent = pattern(from.size, ++expected);
                  from.write(sent);
                  member.wait(member.put_signal(0, source, target, from.size, signal, 1));
                  REQUIRE(to.read(to.size) == sent);
                  member.advance_until([&] { return word_of(signals) == expected; }, "a signal");
                  for (const At& each : {source, target})
                    REQUIRE(member.calls.deregister(member.group, each.memory) == abi::kSuccess);
                }
              }
              REQUIRE(member.calls.deregister(member.group, signal.memory) == abi::kSuccess);
              REQUIRE(!member.has_failed());
              member.close();
            }));
}

// Signals lie in GPU memory: NCCL has to look for another plugin where a device does not reach it.
TEST_P(NcclOneSided, DevicesAllReachGpuMemory) {
  if (std::getenv("TEST_CUDA_DRIVER") != nullptr) GTEST_SKIP() << "a GPU cannot be taken away";
  for (const auto& [transports, gpus, expected] :
       {std::tuple("shm", "1", 1), {"shm", "0", 0}, {"shm,tcp", "1", 0}}) {
    setenv("FAKE_CUDA_DEVICES", gpus, 1);
    EXPECT_EQ("", run(1, 11, transports,
                      [expected](Rank&) {
                        OneSidedCalls calls(GetParam().first, GetParam().second);
                        void* context = nullptr;
                        REQUIRE(calls.init(&context, 1, logger()) == abi::kSuccess);
                        int count = -1, pointers = 0, type = 0;
                        REQUIRE(calls.devices(&count) == abi::kSuccess && count == expected);
                        const abi::Result result = calls.properties(0, &pointers, &type);
                        REQUIRE(result == (count == 1 ? abi::kSuccess : abi::kInvalidArgument));
                        if (count == 1) {
                          REQUIRE(pointers == (abi::kPointerHost | abi::kPointerCuda));
                          REQUIRE(type == abi::kDeviceTypeProxy);
                        }
                        REQUIRE(calls.finalize(context) == abi::kSuccess);
                      }))
        << transports << " with " << gpus << " GPUs";
  }
  unsetenv("FAKE_CUDA_DEVICES");
}

// The places of functions in NCCL's tables, counted in its headers gin_v11.h to gin_v13.h.
constexpr std::size_t kPointer = sizeof(void*);
static_assert(offsetof(abi::GinV11, put) == 13 * kPointer && sizeof(abi::GinV11) == 19 * kPointer);
static_assert(offsetof(abi::GinV12, put) == 13 * kPointer && sizeof(abi::GinV12) == 19 * kPointer);
static_assert(offsetof(abi::GinV13, get) == 15 * kPointer && sizeof(abi::GinV13) == 21 * kPointer);
static_assert(offsetof(abi::GinV11, test) == 15 * kPointer &&
              offsetof(abi::GinV13, test) == 17 * kPointer);
static_assert(offsetof(abi::GinV11, close_listen) == 12 * kPointer);
// In net_v12.h, the virtual devices follow three words of 8 bytes and ten of 4.
static_assert(sizeof(abi::PropertiesHead) == 64 && sizeof(abi::PropertiesV12) == 128);

INSTANTIATE_TEST_SUITE_P(, NcclOneSided, one_sided_versions(), one_sided_name);

}  // namespace
}  // namespace dunlin::testing
