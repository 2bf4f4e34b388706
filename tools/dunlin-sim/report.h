// Report: what a run came to, as text and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "transports/sim/network.h"

namespace dunlin::simulate {

// Durations of one kind, of all ranks.
class Samples {
 public:
  void add(Duration sample) { values_.push_back(sample); }
  std::size_t count() const { return values_.size(); }
  // The value that a share of them does not exceed (0.5: the median); 0 without samples.
  Duration quantile(double share) const;
  Duration max() const { return quantile(1); }
  Duration sum() const;

 private:
  std::vector<Duration> values_;
};

// A figure of one kind of run: for people a line, for programs a member of the JSON line.
struct Fact {
  std::string name;  // "messages_per_s"
  nlohmann::ordered_json value;
  std::string text;  // "messages 1.2 million/s"; empty: for programs only
};

struct Report {
  std::uint64_t steps = 0;  // done, by all ranks together
  Samples step;             // with its computation
  Samples waited;           // of each step, what was no computation
  Duration virtual_time{};  // until the last rank had done its last step
  transport::sim::Statistics statistics;
  std::uint64_t trace_hash = 0;
  std::vector<Fact> facts;
  // Of a command that makes several runs: a table instead of the lines on one.
  std::string table;
  // Of one that has a setting of its own: JSON lines instead of all that.
  std::vector<nlohmann::ordered_json> rows;

  // Takes over what the network counted.
  void take(const transport::sim::Network& network);
  // One run of several.
  void add(const Report& run);
};

// For programs: `virtual` figures are the same for the same command line, those under "real" are
// not.
nlohmann::ordered_json to_json(const Report& report);
std::string to_text(const Report& report);

// Largest resident size of this process so far.
std::uint64_t peak_memory_bytes();

}  // namespace dunlin::simulate
