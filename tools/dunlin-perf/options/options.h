// The command line of dunlin-perf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/bootstrap/net.h"
#include "tools/dunlin-perf/job/shared.h"

namespace dunlin::perf {

enum class Poll : std::uint8_t {
  kAuto,  // spin when every rank of the host has a core of its own
  kSpin,  // poll without pause, as programs do for which latency counts most
  kWait,  // Fabric::wait: spin, yield, sleep, as configured
};

// How the ranks find each other.
enum class Start : std::uint8_t {
  kLauncher,
  kListen,   // this is rank 1 of two, and waits for rank 0
  kConnect,  // this is rank 0 of two
};

struct Options : Shared {
  // These may differ between the processes of a job.
  std::string transport;  // empty: as configured
  Poll poll = Poll::kAuto;
  bool binds = true;
  std::string json;  // as tools::Output::open() takes it
  Start start = Start::kLauncher;
  bootstrap::Endpoint endpoint;  // to listen at or to connect to
  bool keeps_listening = false;
};

// The default port of a listener. It lies below the ports that kernels hand out.
inline constexpr std::uint16_t kDefaultPort = 18520;

// Returns nothing after --help, --version or wrong usage, whose text was printed: the program then
// ends with `exit_code`.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

// Exit codes.
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

}  // namespace dunlin::perf
