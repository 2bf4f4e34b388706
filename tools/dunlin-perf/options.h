// The command line of dunlin-perf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"

namespace dunlin::perf {

enum class Bench : std::uint8_t { kPut, kPutNotify, kNotify, kChannel, kBarrier, kConsistency };
const char* to_string(Bench bench);

enum class Poll : std::uint8_t {
  kAuto,  // spin while every rank of the host has a core of its own
  kSpin,  // the program polls by itself, as one does whose latency counts most
  kWait,  // Fabric::wait: spin, yield, sleep, as configured
};

struct Straggler {
  int rank = 0;
  double factor = 1;
};

struct ConsistencyOptions {
  std::string graph = "complete";
  std::size_t count = 47'237;  // the features of RCV1 and a bias
  std::uint64_t reduces = 10'000;
  std::string sync = "all";
  std::optional<Straggler> straggler;
  Duration compute{};
};

struct Options {
  Bench bench = Bench::kPut;
  std::vector<std::size_t> sizes;
  std::uint64_t iterations = 0;  // 0: by size
  std::uint64_t warmup = 0;      // 0: a tenth of the iterations
  std::uint32_t depth = 0;       // 0: the benchmark's own default
  std::string transport;         // empty: as configured
  Poll poll = Poll::kAuto;
  bool binds = true;
  bool checks = true;
  std::string json;  // empty: none, "-": standard output instead of the table
  ConsistencyOptions consistency;
};

// Nothing: the program ends with `exit_code` (after --help or a usage error, which was printed).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

// Exit codes.
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

}  // namespace dunlin::perf
