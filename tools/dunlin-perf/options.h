// The command line of dunlin-perf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/bootstrap/net.h"
#include "tools/dunlin-perf/shared.h"

namespace dunlin::perf {

enum class Poll : std::uint8_t {
  kAuto,  // spin while every rank of the host has a core of its own
  kSpin,  // the program polls by itself, as one does whose latency counts most
  kWait,  // Fabric::wait: spin, yield, sleep, as configured
};

// How the ranks find one another.
enum class Start : std::uint8_t {
  kLauncher,
  kListen,   // this is rank 1 of two, and waits for rank 0
  kConnect,  // this is rank 0 of two
};

struct Options : Shared {
  // Each process's own.
  std::string transport;  // empty: as configured
  Poll poll = Poll::kAuto;
  bool binds = true;
  std::string json;  // empty: none, "-": standard output instead of the table
  Start start = Start::kLauncher;
  bootstrap::Endpoint endpoint;  // to listen at or to connect to
  bool keeps_listening = false;
};

// Where a listener is, unless told otherwise: below the ports that kernels hand out.
inline constexpr std::uint16_t kDefaultPort = 18520;

// Nothing: the program ends with `exit_code` (after --help or a usage error, which was printed).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

// Exit codes.
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

}  // namespace dunlin::perf
