// What the chaos tests of GPU memory share: ranks whose driver fails, is slow, or whose process is
// killed, by seeds. Each call gives the right result or an error that names the driver's call, none
// hangs, and nothing stays allocated.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <set>
#include <string>

#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {

inline constexpr int kMostChaosRanks = 4;

// What goes wrong with one seed.
enum class Trouble { kNone, kCall, kWork, kDeath };

struct Mishap {
  Mishap(std::mt19937_64& random, int least_ranks, int most_ranks) {
    kind = random() % 2 == 0 ? PeerKind::kThreads : PeerKind::kProcesses;
    size = least_ranks +
           static_cast<int>(random() % static_cast<unsigned>(most_ranks + 1 - least_ranks));
    constexpr std::array kTroubles{Trouble::kNone, Trouble::kCall, Trouble::kCall,
                                   Trouble::kCall, Trouble::kWork, Trouble::kDeath};
    trouble = kTroubles[random() % kTroubles.size()];
    if (trouble == Trouble::kDeath) kind = PeerKind::kProcesses;
    rank = static_cast<int>(random() % static_cast<unsigned>(size));
    // The first calls set the member up.
    number = 1 + random() % (trouble == Trouble::kWork ? 40 : random() % 2 == 0 ? 60 : 400);
    constexpr std::array kCodes{1, 2, 201, 400, 700, 719, 999};
    code = kCodes[random() % kCodes.size()];
    constexpr std::array kDelays{0U, 20U, 500U};
    delay_us = kDelays[random() % kDelays.size()];
  }

  void set_up(FakeCuda& fake, std::uint64_t seed) const {
    fake.delay_us = delay_us;
    fake.seed = seed;
    if (trouble == Trouble::kCall) {
      fake.failing_code = code;
      fake.failing_call = number;
    } else if (trouble == Trouble::kWork) {
      fake.work_code = code;
      fake.failing_work = number;
    } else if (trouble == Trouble::kDeath) {
      fake.killing_call = number;
    }
  }

  PeerKind kind;
  int size;
  Trouble trouble;
  int rank;              // that it happens to, among processes
  std::uint64_t number;  // of the driver's call or work that fails, or of the call that kills
  int code;
  unsigned delay_us;
};

// What the ranks tell one another, in memory that processes share.
struct Verdict {
  std::atomic<bool> is_over;  // a rank has an error: the others give up what waits for it
  std::array<std::array<char, 1024>, kMostChaosRanks> errors;
  std::array<char, 64> failed_call;

  // Whether there was no error, or one names the call that failed.
  bool is_named() const {
    bool has_error = false;
    for (const auto& error : errors) {
      has_error = has_error || error[0] != '\0';
      if (failed_call[0] != '\0' && std::strstr(error.data(), failed_call.data()) != nullptr)
        return true;
    }
    return !has_error;
  }
};

template <std::size_t kSize>
void set_text(std::array<char, kSize>& to, const std::string& text) {
  to[text.copy(to.data(), kSize - 1)] = '\0';
}

// Whether the driver has kept what the call should have given back.
inline bool keeps(const FakeCuda& fake) {
  static const std::set<std::string> kReleases{"cuMemFree",           "cuStreamDestroy",
                                               "cuEventDestroy",      "cuModuleUnload",
                                               "cuIpcCloseMemHandle", "cuDevicePrimaryCtxRelease",
                                               "cuCtxPushCurrent",    "cuMemHostUnregister"};
  return kReleases.contains(fake.failed_call);
}

// Waits for the copies of a rank's stream (null: none), which access its memory. One poll may fail
// although they go on.
inline void settle_copies(GpuStream* stream) {
  for (int errors = 0; stream != nullptr && errors < 2;) {
    const Status status = stream->poll();
    if (status.is_ok()) break;
    if (!status.is_busy()) ++errors;
  }
}

// One rank's part. Returns its first error; that others have one is none.
using ChaosPart = std::function<Status(transport::Fabric&, const Verdict&)>;

inline void run_chaos(FakeCuda& fake, const Mishap& mishap, std::uint64_t seed,
                      const ChaosPart& part) {
  void* const page =
      mmap(nullptr, sizeof(Verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const verdict = new (page) Verdict{};
  const bool are_processes = mishap.kind == PeerKind::kProcesses;
  const bool is_death = mishap.trouble == Trouble::kDeath;
  fake.reset();
  if (!are_processes) mishap.set_up(fake, seed);
  RunOptions options{.kind = mishap.kind, .size = mishap.size, .killed = {}, .configure = {}};
  options.configure = [](Config& config) {
    config.transports = {"shm"};
    config.deadline = std::chrono::seconds(60) * timeout_factor();
  };
  if (is_death) options.killed = {mishap.rank};
  const auto expect_nothing = [&fake] {
    if (!keeps(fake)) expect_nothing_left(fake);
  };
  options.at_end = expect_nothing;
  run_ranks(options, [&](transport::Fabric& fabric) {
    const bool is_mine = !are_processes || fabric.rank() == Rank(mishap.rank);
    if (are_processes && is_mine) mishap.set_up(fake, seed);
    const Status status = part(fabric, *verdict);
    // It made fewer calls.
    if (is_death && is_mine) kill(getpid(), SIGKILL);
    if (are_processes && is_mine) set_text(verdict->failed_call, fake.failed_call);
    if (status.is_error()) {
      set_text(verdict->errors[static_cast<std::size_t>(fabric.rank().value())],
               status.to_string());
      verdict->is_over = true;
      EXPECT_NE(mishap.trouble, Trouble::kNone) << status.to_string();
    }
    if (!is_death) sync(fabric, "the end");
  });
  if (!are_processes) {
    set_text(verdict->failed_call, fake.failed_call);
    expect_nothing();
    if (keeps(fake)) fake.write_off();
  }
  if (mishap.trouble == Trouble::kCall) {
    EXPECT_TRUE(verdict->is_named()) << "no error names the failed " << verdict->failed_call.data();
    for (const auto& error : verdict->errors) {
      if (::testing::Test::HasFailure()) std::fprintf(stderr, "   %s\n", error.data());
    }
  }
  munmap(page, sizeof(Verdict));
}

}  // namespace dunlin::testing
