// Tuning: which algorithm suits which collective and size, as it was measured, and the file that
// keeps it.
//
// A tuning belongs to a shape: the processor, the number of ranks and hosts, the transport. The
// file holds one per shape; `dunlin-perf tune` writes it, communicators read it, and `dunlin-info
// --tuning` explains it.
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

// Of messages between two ranks: alpha + bytes * beta.
struct MeasuredLink {
  std::string between;  // "ranks of a host", "hosts"
  double alpha = 0;     // seconds
  double beta = 0;      // seconds per byte
};

struct TunedCandidate {
  std::string algorithm;
  double predicted = 0;            // seconds, by the cost model
  std::optional<double> measured;  // seconds; nothing: the prediction was too bad to try
};

struct TunedChoice {
  Collective collective = Collective::kAllReduce;
  std::size_t bytes = 0;  // Problem::count elements
  std::string algorithm;
  std::vector<TunedCandidate> candidates;  // best first
};

struct Tuning {
  TuningShape shape;
  std::vector<MeasuredLink> links;
  double gamma = 0;                  // seconds per byte that is reduced
  std::vector<TunedChoice> choices;  // by collective, then ascending by size

  // The choice for the size that is nearest by ratio; null: the collective was not tuned.
  const TunedChoice* find(Collective collective, std::size_t bytes) const;
};

// As a member of the file.
std::string to_text(const Tuning& tuning);
Result<Tuning> parse_tuning(const std::string& text);

// The tunings in a file. No file is no tunings; kCorrupted says what is wrong with one.
Result<std::vector<Tuning>> read_tunings(const std::string& path);
// Replaces the one of the same shape, or adds it; the file's folder is made. Whoever reads the file
// meanwhile finds the old or the new one.
Status write_tuning(const std::string& path, const Tuning& tuning);

}  // namespace dunlin::collective
