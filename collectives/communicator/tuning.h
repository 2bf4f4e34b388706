// Tuning: measurements of which algorithm is fastest for which collective and size.
//
// A tuning is valid for one shape of job: the processor, the number of ranks and hosts, and the
// transport. A file holds one tuning per shape. `dunlin-perf tune` writes the file, communicators
// read it, and `dunlin-info --tuning` explains it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/schedule/problem.h"

namespace dunlin::collective {

struct TuningShape {
  std::string processor;
  int size = 1;  // ranks
  int hosts = 1;
  std::string transport;  // between the ranks
  bool is_all_mapped = false;

  std::string key() const;  // "4 ranks on 1 host, shm, mapped; AMD EPYC"
};

// The cost of a message between two ranks: alpha + bytes * beta.
struct MeasuredLink {
  std::string between;  // "ranks of a host", "hosts"
  double alpha = 0;     // seconds
  double beta = 0;      // seconds per byte
};

struct TunedCandidate {
  std::string algorithm;
  double predicted = 0;            // seconds, by the cost model
  std::optional<double> measured;  // seconds; absent: the prediction was too slow to measure it
};

struct TunedChoice {
  Collective collective = Collective::kAllReduce;
  std::size_t bytes = 0;  // size of Problem::count elements
  std::string algorithm;
  std::vector<TunedCandidate> candidates;  // best first
};

struct Tuning {
  TuningShape shape;
  std::vector<MeasuredLink> links;
  double gamma = 0;                  // seconds per byte that is reduced
  std::vector<TunedChoice> choices;  // by collective, then ascending by size

  // The choice for the nearest size, by ratio. Null: the collective was not tuned.
  const TunedChoice* find(Collective collective, std::size_t bytes) const;
};

// One tuning as JSON, as it stands in the file.
std::string to_text(const Tuning& tuning);
Result<Tuning> parse_tuning(const std::string& text);

// All tunings of a file, as its text. An error begins with `name`, and names what is malformed
// (kCorrupted).
std::string to_text(const std::vector<Tuning>& tunings);
Result<std::vector<Tuning>> parse_tunings(const std::string& name, const std::string& text);
// Reads all tunings of a file. A file that does not exist, or that this user may not read, holds
// none.
Result<std::vector<Tuning>> read_tunings(const std::string& path);
// Adds the tuning to the file, in place of one of the same shape. Creates the file's folder. The
// file is written as replace_file() (runtime/files/output_file.h) does, so that a concurrent reader
// finds either the old or the new one.
Status write_tuning(const std::string& path, const Tuning& tuning);

}  // namespace dunlin::collective
