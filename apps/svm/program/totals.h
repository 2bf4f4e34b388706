// Totals: the work of a worker so far, or of all workers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "collectives/stochastic/stochastic_reduce.h"
#include "runtime/bytes.h"

namespace dunlin::svm {

struct Totals {
  std::uint64_t exchanges = 0;
  std::uint64_t examples = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t torn = 0;
  std::uint64_t stale = 0;
  std::uint64_t reached_target = 0;  // 1: this worker found that the target objective is reached
  double compute_s = 0;
  double exchange_s = 0;                          // in all reduces
  double wait_s = 0;                              // of exchange_s, the time of waiting for inputs
  std::map<std::uint32_t, std::uint64_t> inputs;  // consistent inputs -> number of reduces

  void add(const collective::ReduceReport& report, double exchange_seconds);
  double inputs_per_reduce() const;
  Totals& operator+=(const Totals& other);

  Bytes encode() const;
  static Result<Totals> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::svm
