// TopicValues: what ranks publish under a topic (Bootstrap::key_of), for a rank that needs the
// values of many others. Owner thread only. Must not outlive the bootstrap.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class TopicValues {
 public:
  TopicValues(Bootstrap& bootstrap, std::string topic)
      : bootstrap_(bootstrap), topic_(std::move(topic)) {}

  const std::string& topic() const { return topic_; }
  // Waits until all `publishers` have published, and keeps their values, so that lookup() returns
  // each at once; see Bootstrap::lookup_each. Costs nothing if it has all of them.
  Status fetch(std::span<const Rank> publishers, Duration timeout);
  // A value that it keeps, or else the one for which Bootstrap::lookup_from waits.
  Result<Bytes> lookup(Rank publisher, Duration timeout) const;
  // Keeps the value of this rank no longer.
  void drop(Rank publisher) { kept_.erase(publisher); }

 private:
  Bootstrap& bootstrap_;
  std::string topic_;
  std::map<Rank, Bytes> kept_;
};

}  // namespace dunlin::bootstrap
