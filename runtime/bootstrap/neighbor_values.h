// NeighborValues: a value of this rank for its neighbors in a graph, and those of the neighbors for
// this rank.
//
// Each rank publishes one value. The bootstrap forgets a rank's value when that rank and all of its
// neighbors have destroyed their NeighborValues; it keeps that of a rank without neighbors until
// the job ends. Owner thread only. Destroy it before the bootstrap.
#pragma once

#include <set>
#include <span>
#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/topic_values.h"
#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class NeighborValues {
 public:
  // `topic`: the same on all ranks of the graph; no other graph has it. `in`, `out`: the ranks with
  // edges to and from this one.
  NeighborValues(Bootstrap& bootstrap, std::string topic, std::span<const Rank> in,
                 std::span<const Rank> out);
  ~NeighborValues();
  NeighborValues(const NeighborValues&) = delete;
  NeighborValues& operator=(const NeighborValues&) = delete;

  // To be called once.
  Status publish(std::span<const std::byte> value);
  // Waits until all neighbors have published their values, so that lookup() returns each at once;
  // see Bootstrap::lookup_each.
  Status fetch(Duration timeout);
  // Waits until a neighbor has published its value; see Bootstrap::lookup_from.
  Result<Bytes> lookup(Rank neighbor, Duration timeout) const {
    return values_.lookup(neighbor, timeout);
  }

  const std::set<Rank>& neighbors() const { return neighbors_; }

 private:
  Bootstrap& bootstrap_;
  TopicValues values_;
  std::set<Rank> neighbors_;
  bool is_published_ = false;
};

}  // namespace dunlin::bootstrap
