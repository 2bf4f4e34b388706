#include "runtime/bootstrap/neighbor_values.h"

#include <utility>
#include <vector>

namespace dunlin::bootstrap {

NeighborValues::NeighborValues(Bootstrap& bootstrap, std::string topic, std::span<const Rank> in,
                               std::span<const Rank> out)
    : bootstrap_(bootstrap),
      values_(bootstrap, std::move(topic)),
      neighbors_(in.begin(), in.end()) {
  neighbors_.insert(out.begin(), out.end());
  neighbors_.erase(bootstrap.rank());
}

// A value is a topic of its own: its users are its publisher, which knows their number, and the
// publisher's neighbors.
NeighborValues::~NeighborValues() {
  if (!is_published_) return;
  // A rank without neighbors waits for nobody. A rank with another graph, which counts this one as
  // a neighbor, may not have looked yet, and then learns from the value that the graphs differ.
  if (neighbors_.empty() && bootstrap_.size() > 1) return;
  bootstrap_.release(Bootstrap::key_of(values_.topic(), bootstrap_.rank()), neighbors_.size() + 1);
  for (const Rank neighbor : neighbors_)
    bootstrap_.release(Bootstrap::key_of(values_.topic(), neighbor), 0);
}

Status NeighborValues::publish(std::span<const std::byte> value) {
  DUNLIN_TRY(bootstrap_.publish(Bootstrap::key_of(values_.topic(), bootstrap_.rank()), value));
  is_published_ = true;
  return Status::ok();
}

Status NeighborValues::fetch(Duration timeout) {
  return values_.fetch(std::vector<Rank>(neighbors_.begin(), neighbors_.end()), timeout);
}

}  // namespace dunlin::bootstrap
