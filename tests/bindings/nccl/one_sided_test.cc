// One-sided transfers, called as NCCL calls the plugin, under each version of the interface, with
// memory of the host and of a GPU. Without a GPU, on the stand-in for CUDA's driver.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "tests/bindings/nccl/gpu_memory.h"
#include "tests/bindings/nccl/one_sided.h"

namespace dunlin::testing {
namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;  // of memory that is mapped
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::string transport() {
  const char* const name = std::getenv("NCCL_TEST_TRANSPORT");
  return name == nullptr ? "shm" : name;
}

std::uint64_t word_of(Buffer& buffer, std::size_t index = 0) {
  std::uint64_t word = 0;
  std::memcpy(&word, buffer.read((index + 1) * kWord).data() + index * kWord, kWord);
  return word;
}

// Memory of this kind, filled with zeros.
Buffer& cleared(Buffer& buffer) {
  buffer.write(Block(buffer.size));
  return buffer;
}

// The parameters: the version of the interface, and whether NCCL's host code uses it.
class NcclOneSided : public ::testing::TestWithParam<std::pair<int, bool>> {
 protected:
  NcclOneSided() { setenv("FAKE_CUDA_DELAY_US", "100", 0); }
  ~NcclOneSided() override { dlclose(library_); }

  using Body = std::function<void(Member&, Cuda&)>;
  std::string run_here(int size, const Body& body, const std::vector<int>& killed = {}) {
    return run(
        size, 11, transport(),
        [&](Rank& rank) {
          Cuda cuda;
          Member member(rank, GetParam().first, GetParam().second);
          body(member, cuda);
        },
        killed);
  }

 private:
  void* const library_ = load_cuda();  // so that the plugin finds it under its name
};

// A window with a slot for each rank, and a signal that counts what has arrived in them.
struct Slots {
  Slots(Member& of, Cuda& cuda, Kind kind, Kind signal_kind, std::size_t slot_bytes)
      : member(of),
        slot(slot_bytes),
        memory(cuda, kind, kPiece * (slot_bytes * kMostRanks / kPiece + 1)),
        from(cuda, kind, kPiece * (slot_bytes / kPiece + 1)),
        signals(cuda, signal_kind, kPiece),
        window{member.add(cleared(memory).data, memory.size, memory.type())},
        source{member.add(from.data, from.size, from.type())},
        signal{member.add(cleared(signals).data, signals.size, signals.type())} {}
  void remove() {
    member.rank.sync();
    for (const At& each : {window, source, signal})
      REQUIRE(member.calls.deregister(member.group, each.memory) == abi::kSuccess);
  }
  At slot_of(int rank) const { return {window.memory, slot * static_cast<std::size_t>(rank)}; }

  Member& member;
  std::size_t slot;
  Buffer memory, from, signals;
  At window, source, signal;
};

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
                             std::vector<std::uint64_t> expected(kWords), found(kWords);
                             for (std::size_t i = 0; i < kWords; ++i)
                               expected[i] = (i + 1) * kTimes * ranks;
                             member.advance_until(
                                 [&] {
                                   const Block bytes = slots.signals.read(kWords * kWord);
                                   std::memcpy(found.data(), bytes.data(), bytes.size());
                                   return found == expected;
                                 },
                                 "all additions");
                             // The other ranks may need this one's answers.
                             slots.remove();
                             member.close();
                           }))
        << "kind " << static_cast<int>(kind);
  }
}

TEST_P(NcclOneSided, GetsReadWhatOthersHave) {
  if (GetParam().first < 13) GTEST_SKIP() << "versions before 13 have no gets";
  for (const Kind kind : {Kind::kHost, Kind::kAllocated}) {
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
          second.rank.sync();  // a rank may still answer the other one's question
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

TEST_P(NcclOneSided, ADeathFailsWhatIsUnderWayToIt) {
  for (const Kind kind : {Kind::kHost, Kind::kAllocated}) {
    EXPECT_EQ(
        "",
        run_here(3,
                 [kind](Member& member, Cuda& cuda) {
                   Slots slots(member, cuda, kind, kind, std::size_t{1} << 20);
                   member.rank.sync();
                   if (member.rank.number == 2) raise(SIGKILL);
                   // NCCL's threads see the error of a transfer, or ask for it.
                   member.advance_until([&] { return member.has_failed(); }, "the death");
                   void* request = nullptr;
                   REQUIRE(member.calls.put(member.context, 0, slots.source.memory, 1000, 0,
                                            slots.window.memory, 2, &request) == abi::kRemoteError);
                   REQUIRE(request == nullptr);
                   // The others go on.
                   member.wait(member.put_signal(1 - member.rank.number, slots.source, slots.window,
                                                 1000, slots.signal, 1));
                   member.advance_until([&] { return word_of(slots.signals) == 1; }, "a signal");
                   member.rank.board.step[2] = 1 << 20;  // it comes to no sync() any more
                   slots.remove();
                   member.close();
                 },
                 {2}))
        << "kind " << static_cast<int>(kind);
  }
}

TEST_P(NcclOneSided, WrongArgumentsAreRefused) {
  EXPECT_EQ("", run_here(2, [](Member& member, Cuda& cuda) {
              Slots slots(member, cuda, Kind::kHost, Kind::kHost, 1000);
              const OneSidedCalls& calls = member.calls;
              void* request = &request;
              const auto refuses = [&](At from, At to, std::size_t size, std::uint32_t rank,
                                       At signal, std::uint32_t operation) {
                return calls.put_signal(member.context, from.offset, from.memory, size, to.offset,
                                        to.memory, rank, signal.offset, signal.memory, 1, operation,
                                        &request) == abi::kInvalidArgument &&
                       request == nullptr;
              };
              const At from = slots.source, to = slots.window, signal = slots.signal;
              const std::size_t size = slots.from.size;
              REQUIRE(refuses({}, to, 8, 1, signal, 2));
              REQUIRE(refuses(from, {}, 8, 1, signal, 2));
              REQUIRE(refuses(from, to, 8, 1, {}, 2));
              REQUIRE(refuses({&request, 0}, to, 8, 1, signal, 2));
              REQUIRE(refuses({from.memory, size}, to, 1, 1, signal, 2));
              REQUIRE(refuses(from, {to.memory, slots.memory.size - 7}, 8, 1, signal, 2));
              REQUIRE(refuses(from, {to.memory, ~std::uint64_t{0}}, 8, 1, signal, 2));
              REQUIRE(refuses(from, to, ~std::size_t{0}, 1, signal, 2));
              REQUIRE(refuses(from, to, 8, 1, {signal.memory, 4}, 2));
              REQUIRE(refuses(from, to, 8, 1, {signal.memory, slots.signals.size}, 2));
              REQUIRE(refuses(from, to, 8, 1, signal, 3));
              REQUIRE(refuses(from, to, 8, 2, signal, 2));
              REQUIRE(refuses(from, to, 8, ~0U, signal, 2));
              int done = 0;
              REQUIRE(calls.test(member.group, nullptr, &done) == abi::kInvalidArgument);
              REQUIRE(calls.deregister(member.group, &request) == abi::kInvalidArgument);
              REQUIRE(calls.progress(nullptr) == abi::kInvalidArgument);
              void* memory = &memory;
              void* device_memory = &device_memory;
              REQUIRE(calls.register_memory(member.group, &request, 8, 7, 0, &memory,
                                            &device_memory) == abi::kInvalidArgument);
              REQUIRE(memory == nullptr && device_memory == nullptr);
              REQUIRE(calls.register_dma_buf(member.group, &request, 8, abi::kPointerCuda, 0, 3, 0,
                                             &memory, &device_memory) == abi::kInvalidArgument);
              // What one rank cannot register, no rank has.
              const bool is_wrong = member.rank.number == 1;
              const abi::Result result =
                  calls.register_memory(member.group, &request, is_wrong ? 0 : 8, abi::kPointerHost,
                                        0, &memory, &device_memory);
              REQUIRE(result == (is_wrong ? abi::kInvalidArgument : abi::kRemoteError));
              REQUIRE(memory == nullptr && device_memory == nullptr);
              // Nothing of that has broken the group.
              REQUIRE(!member.has_failed());
              member.wait(member.put_signal(1 - member.rank.number, from, to, 8, signal, 1));
              member.advance_until([&] { return word_of(slots.signals) == 1; }, "a signal");
              slots.remove();
              REQUIRE(has_logged("rank 2 of a group of 2"));
              member.close();
            }));
}

TEST_P(NcclOneSided, HandlesThatAreNoneAreRefused) {
  EXPECT_EQ("", run(1, 11, transport(), [](Rank&) {
              Cuda cuda;
              OneSidedCalls calls(GetParam().first, GetParam().second);
              void* context = nullptr;
              REQUIRE(calls.init(&context, 1, logger()) == abi::kSuccess);
              char handle[abi::kHandleBytes], garbage[abi::kHandleBytes];
              void* listener = nullptr;
              void* group = &group;
              REQUIRE(calls.listen(context, 9, handle, &listener) == abi::kInvalidArgument);
              REQUIRE(calls.listen(context, 0, handle, &listener) == abi::kSuccess);
              std::memset(garbage, 60, sizeof garbage);
              void* handles[] = {handle, garbage};
              REQUIRE(calls.connect(handles, 2, 0, listener, &group) == abi::kInvalidArgument);
              REQUIRE(group == nullptr);
              REQUIRE(calls.connect(handles, 1, 1, listener, &group) == abi::kInvalidArgument);
              REQUIRE(calls.connect(handles, 0, 0, listener, &group) == abi::kInvalidArgument);
              handles[1] = nullptr;
              REQUIRE(calls.connect(handles, 2, 0, listener, &group) == abi::kInvalidArgument);
              REQUIRE(calls.close_listen(listener) == abi::kSuccess);
              REQUIRE(calls.finalize(context) == abi::kSuccess);
            }));
}

// The others have not come: the ranks that are missing are named.
TEST_P(NcclOneSided, WaitsOnlyUntilTheDeadline) {
  setenv("DUNLIN_DEADLINE", "500ms", 1);
  EXPECT_EQ("", run(2, 11, transport(), [](Rank& rank) {
              Cuda cuda;
              OneSidedCalls calls(GetParam().first, GetParam().second);
              void* context = nullptr;
              void* listener = nullptr;
              REQUIRE(calls.init(&context, 1, logger()) == abi::kSuccess);
              REQUIRE(calls.listen(context, 0, rank.board.handle[rank.number], &listener) ==
                      abi::kSuccess);
              rank.sync();
              if (rank.number == 0) {
                void* handles[] = {rank.board.handle[0], rank.board.handle[1]};
                void* group = nullptr;
                REQUIRE(calls.connect(handles, 2, 0, listener, &group) == abi::kRemoteError);
                REQUIRE(has_logged("not connected with rank 1"));
              }
              rank.sync();
              REQUIRE(calls.close_listen(listener) == abi::kSuccess);
              REQUIRE(calls.finalize(context) == abi::kSuccess);
            }));
  unsetenv("DUNLIN_DEADLINE");
}

// Signals lie in GPU memory: NCCL has to look for another plugin where a device does not reach it.
TEST_P(NcclOneSided, DevicesAreThoseThatReachGpuMemory) {
  if (std::getenv("TEST_CUDA_DRIVER") != nullptr) GTEST_SKIP() << "a GPU cannot be taken away";
  for (const bool has_gpu : {true, false}) {
    setenv("FAKE_CUDA_DEVICES", has_gpu ? "1" : "0", 1);
    EXPECT_EQ("", run(1, 11, "tcp,shm", [has_gpu](Rank&) {
                OneSidedCalls calls(GetParam().first, GetParam().second);
                void* context = nullptr;
                REQUIRE(calls.init(&context, 1, logger()) == abi::kSuccess);
                int count = -1, pointers = 0, type = 0;
                REQUIRE(calls.devices(&count) == abi::kSuccess && count == (has_gpu ? 1 : 0));
                const abi::Result result = calls.properties(0, &pointers, &type);
                REQUIRE(result == (has_gpu ? abi::kSuccess : abi::kInvalidArgument));
                if (has_gpu) {
                  REQUIRE(pointers == (abi::kPointerHost | abi::kPointerCuda));
                  REQUIRE(type == abi::kDeviceTypeProxy);
                }
                REQUIRE(calls.finalize(context) == abi::kSuccess);
              }));
  }
  unsetenv("FAKE_CUDA_DEVICES");
}

INSTANTIATE_TEST_SUITE_P(, NcclOneSided,
                         ::testing::Values(std::pair(11, false), std::pair(12, false),
                                           std::pair(13, false), std::pair(13, true)),
                         [](const auto& each) {
                           return (each.param.second ? "rma_v" : "gin_v") +
                                  std::to_string(each.param.first);
                         });

}  // namespace
}  // namespace dunlin::testing
