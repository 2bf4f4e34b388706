// One-sided transfers that fail: ranks that die, leave, stop or pass wrong arguments, and a GPU
// that fails.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include <vector>

#include "tests/bindings/nccl/one_sided_fixture.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace dunlin::testing {
namespace {

class NcclOneSidedFailure : public OneSidedTest {};

// The stand-in for CUDA's driver, in the process of a rank.
FakeCuda& stand_in() {
  void* const library = load_cuda();
  return *reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
}

TEST_P(NcclOneSidedFailure, ADeathFailsWhatIsUnderWayToIt) {
  for (const Kind kind : {Kind::kHost, Kind::kAllocated}) {
    EXPECT_EQ(
        "",
        run_here(3,
                 [kind](Member& member, Cuda& cuda) {
                   Rank& rank = member.rank;
                   Slots slots(member, cuda, kind, kind, std::size_t{1} << 20);
                   rank.sync();
                   if (rank.number == 2) raise(SIGSTOP);
                   rank.await_stopped(2);
                   rank.board.step[2] = 1 << 20;  // it comes to no sync() any more
                   rank.sync();
                   // More than it has room for, so that some are under way when it dies.
                   std::deque<void*> requests;
                   for (int i = 0; i < 3000; ++i)
                     requests.push_back(member.put_signal(2, {}, {}, 0, slots.signal, 1));
                   rank.sync();
                   if (rank.number == 0) rank.send_signal(2, SIGKILL);
                   until([&] { return member.calls.progress(member.context) == abi::kRemoteError; },
                         "the death");
                   REQUIRE(member.has_failed());
                   int failed = 0, done = 0;
                   for (int round = 0; round < 2; ++round) {
                     for (void*& request : requests) {
                       if (request == nullptr) continue;
                       const abi::Result result = member.calls.test(member.group, request, &done);
                       if (result == abi::kRemoteError) {
                         ++failed;  // NCCL may ask again
                       } else {
                         REQUIRE(result == abi::kSuccess && done == 1);
                         request = nullptr;
                       }
                     }
                   }
                   REQUIRE(failed > 0 && failed % 2 == 0);
                   void* request = nullptr;
                   REQUIRE(member.calls.put(member.context, 0, slots.source.memory, 1000, 0,
                                            slots.window.memory, 2, &request) == abi::kRemoteError);
                   REQUIRE(request == nullptr);
                   // The others go on.
                   request = member.put_signal(1 - rank.number, slots.source, slots.window, 1000,
                                               slots.signal, 1);
                   until([&] { return member.is_done(request); }, "a transfer");
                   until([&] { return word_of(slots.signals) == 1; }, "a signal");
                   slots.remove();
                   member.close();
                 },
                 {2}))
        << "kind " << static_cast<int>(kind);
  }
}

TEST_P(NcclOneSidedFailure, ADeathEndsTheRegistrationsOfOthers) {
  EXPECT_EQ("", run_here(3,
                         [](Member& member, Cuda&) {
                           member.rank.sync();
                           if (member.rank.number == 2) raise(SIGKILL);
                           Block block(1000);
                           void* memory = nullptr;
                           void* device_memory = nullptr;
                           REQUIRE(member.calls.register_memory(
                                       member.group, block.data(), block.size(), abi::kPointerHost,
                                       0, &memory, &device_memory) == abi::kRemoteError);
                           REQUIRE(memory == nullptr && device_memory == nullptr);
                           member.close();
                         },
                         {2}));
}

// A rank whose communicator has been destroyed is missed only by transfers to it.
TEST_P(NcclOneSidedFailure, ARankMayLeaveBeforeOthers) {
  EXPECT_EQ(
      "", run_here(2, [](Member& member, Cuda& cuda) {
        Slots slots(member, cuda, Kind::kHost, Kind::kHost, 1000);
        Rank& rank = member.rank;
        if (rank.number == 1) {
          member.wait(member.put_signal(0, slots.source, slots.window, 1000, slots.signal, 1));
          member.close();
          rank.sync();
          return;
        }
        rank.sync();
        member.advance_until([&] { return word_of(slots.signals) == 1; }, "a signal");
        abi::Result result = abi::kSuccess;
        void* request = nullptr;
        until(
            [&] {
              REQUIRE(!member.has_failed());
              result = member.calls.put(member.context, 0, nullptr, 0, 0, nullptr, 1, &request);
              if (result == abi::kSuccess) REQUIRE(member.is_done(request));
              return result != abi::kSuccess;
            },
            "the other rank's end");
        REQUIRE(result == abi::kRemoteError && !member.has_failed());
        member.close();
      }));
}

TEST_P(NcclOneSidedFailure, MemoryThatIsDeregisteredInUseFailsItsTransfers) {
  EXPECT_EQ(
      "", run_here(2, [](Member& member, Cuda& cuda) {
        Slots slots(member, cuda, Kind::kHost, Kind::kHost, 1000);
        member.rank.sync();
        if (member.rank.number == 1) {
          raise(SIGSTOP);
        } else {
          member.rank.await_stopped(1);
          // It cannot say now how to reach its memory.
          void* const request = member.put(1, slots.source, slots.window, 1000);
          REQUIRE(!member.is_done(request));
          REQUIRE(member.calls.deregister(member.group, slots.source.memory) == abi::kSuccess);
          int done = 0;
          REQUIRE(member.calls.test(member.group, request, &done) == abi::kInvalidArgument);
          REQUIRE(member.has_failed() && has_logged("deregistered while it was in use"));
          member.rank.send_signal(1, SIGCONT);
        }
        member.close();
      }));
}

// A copy within the rank is waited for, and the deregistration does not fail for it.
TEST_P(NcclOneSidedFailure, MemoryThatIsDeregisteredDuringAnOwnPutIsFreeAfterwards) {
  if (std::getenv("TEST_CUDA_DRIVER") != nullptr) GTEST_SKIP() << "a GPU does not wait on demand";
  EXPECT_EQ("", run_here(1, [](Member& member, Cuda& cuda) {
              Slots slots(member, cuda, Kind::kAllocated, Kind::kHost, 1000);
              FakeCuda& fake = stand_in();
              fake.hold();
              void* const request = member.put(0, slots.source, slots.window, 1000);
              REQUIRE(!member.is_done(request));
              std::thread release([&] {
                until([] { return has_logged("deregistered while it was in use"); },
                      "the deregistration");
                fake.release();
              });
              REQUIRE(member.calls.deregister(member.group, slots.window.memory) == abi::kSuccess);
              release.join();
              int done = 0;
              REQUIRE(member.calls.test(member.group, request, &done) == abi::kInvalidArgument);
              member.close();
            }));
}

// A GPU that fails loses signals: then the rank must not go on as if they had not come.
TEST_P(NcclOneSidedFailure, AGpuThatFailsFailsTheGroup) {
  if (std::getenv("TEST_CUDA_DRIVER") != nullptr) GTEST_SKIP() << "a GPU does not fail on demand";
  EXPECT_EQ("", run_here(2, [](Member& member, Cuda& cuda) {
              Slots slots(member, cuda, Kind::kAllocated, Kind::kAllocated, 1000);
              if (member.rank.number == 0) {
                FakeCuda& fake = stand_in();
                fake.work_code = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
                fake.failing_work = 1;
              }
              member.rank.sync();
              if (member.rank.number == 1) {
                member.put_signal(0, {}, {}, 0, slots.signal, 1);
              } else {
                until([&] { return member.calls.progress(member.context) == abi::kSystemError; },
                      "the failure");
                REQUIRE(has_logged("a signal in GPU memory"));
              }
              // The other one learns that it is alone.
              until([&] { return member.has_failed(); }, "the failure of the group");
              member.close();
            }));
}

TEST_P(NcclOneSidedFailure, WrongArgumentsAreRefused) {
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

TEST_P(NcclOneSidedFailure, HandlesThatAreNoneAreRefused) {
  EXPECT_EQ("", run(1, 11, one_sided_transport(), [](Rank&) {
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
TEST_P(NcclOneSidedFailure, WaitsOnlyUntilTheDeadline) {
  setenv("DUNLIN_BOOTSTRAP_TIMEOUT", "500ms", 1);
  EXPECT_EQ("", run(2, 11, one_sided_transport(), [](Rank& rank) {
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
  unsetenv("DUNLIN_BOOTSTRAP_TIMEOUT");
}

INSTANTIATE_TEST_SUITE_P(, NcclOneSidedFailure, one_sided_versions(), one_sided_name);

}  // namespace
}  // namespace dunlin::testing
