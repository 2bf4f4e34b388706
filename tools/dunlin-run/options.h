// The command line of dunlin-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/net.h"
#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::run {

enum class Bind { kAuto, kCore, kShared, kNone };

struct Options {
  int ranks = 0;                                   // started here
  int size = 0;                                    // of the whole job
  int first_rank = 0;                              // of those started here
  std::optional<bootstrap::Endpoint> coordinator;  // empty: on loopback, any port
  Bind bind = Bind::kAuto;
  bool is_tagged = true;
  bool keeps_going = false;
  Duration timeout{};  // zero: none
  Duration grace{};
  std::vector<std::string> command;

  bool hosts_coordinator() const { return first_rank == 0; }
  bool is_whole_job() const { return size == ranks; }
};

// What the arguments ask for; nothing when they asked for help or were wrong, which has then been
// printed and `exit_code` set.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::run
