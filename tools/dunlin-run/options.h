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

// Which lines of output begin with the number of their rank.
enum class Tags {
  kAllButJson,  // standard output's lines that hold a JSON object are left to programs
  kAllLines,
  kNone,
};

struct Options {
  int ranks = 0;                                   // started here
  int size = 0;                                    // ranks that start the job
  int max_ranks = 0;                               // ranks that may ever take part
  std::string job_file;                            // to be written; empty: none
  std::string joins;                               // file of the running job to join; empty: none
  int first_rank = 0;                              // the first of those started here
  std::optional<bootstrap::Endpoint> coordinator;  // empty: any port of the loopback interface
  Bind bind = Bind::kAuto;
  Tags tags = Tags::kAllButJson;
  bool keeps_going = false;
  bool reports = false;  // who held up whom
  Duration timeout{};    // zero: no timeout
  Duration grace{};
  std::vector<std::string> command;

  bool is_joining() const { return !joins.empty(); }
  bool may_grow() const { return max_ranks > size; }
  bool hosts_coordinator() const { return first_rank == 0 && !is_joining(); }
  bool is_whole_job() const { return size == ranks; }
};

// Returns nothing when the arguments ask for help or the version or are wrong. The text for that
// has then been printed, and `exit_code` is set.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::run
