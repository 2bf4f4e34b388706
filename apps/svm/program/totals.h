// Totals: the work of a worker so far, and the sum over all workers at the end.
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

// Collective over the members: the sum of their totals. It also keeps every rank here until all
// ranks are done, since neighbors may still write into its memory. It waits for slow workers as
// long as they live: in ASYNC they may be far behind. A death ends it on all members or on none, so
// that all survivors agree on a new group.
Result<Totals> collect_totals(transport::Fabric& fabric, const Membership& membership,
                              const Totals& own);

}  // namespace dunlin::svm
