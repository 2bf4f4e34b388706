// Report: the results of a run, as text and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "transports/sim/network.h"

namespace dunlin::simulate {

// Durations of one kind, from all ranks.
class Samples {
 public:
  void add(Duration sample) { values_.push_back(sample); }
  std::size_t count() const { return values_.size(); }
  // The value that this share of the samples does not exceed (0.5: the median); 0 without samples.
  Duration quantile(double share) const;
  Duration max() const { return quantile(1); }
  Duration sum() const;

 private:
  std::vector<Duration> values_;
};

// A result that only one kind of run has: a line of the text and a member of the JSON line.
struct Fact {
  std::string name;  // "messages_per_s"
  nlohmann::ordered_json value;
  std::string text;  // "messages 1.2 million/s"; empty: only in JSON
};

struct Report {
  std::uint64_t steps = 0;  // that all ranks together have done
  Samples step;             // the times of the steps, with their computation
  Samples waited;           // the times of the steps without their computation
  Duration virtual_time{};  // until the last rank had done its last step
  transport::sim::Statistics statistics;
  std::uint64_t trace_hash = 0;
  std::vector<Fact> facts;
  // A command that makes several runs has this table instead of the lines about one.
  std::string table;
  // A command with a setting of its own has these JSON lines instead of all that.
  std::vector<nlohmann::ordered_json> rows;

  // Takes over the statistics of the network.
  void take(const transport::sim::Network& network);
  // Adds one run of several.
  void add(const Report& run);
};

// The same command line gives the same figures, except for those under "real".
nlohmann::ordered_json to_json(const Report& report);
std::string to_text(const Report& report);

// The largest resident size of this process so far.
std::uint64_t peak_memory_bytes();

}  // namespace dunlin::simulate
