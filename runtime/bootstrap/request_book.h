// RequestBook: the outstanding requests of the ranks of a job, at most one per rank. It finds them
// by rank, by what they ask for, and by deadline, at a cost that does not grow with the job.
//
// It belongs to a JobLedger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/clock.h"
#include "runtime/rank.h"

namespace dunlin::bootstrap {

class RequestBook {
 public:
  struct Request {
    MessageType type = MessageType::kJoin;
    std::uint64_t number = kNoRequest;
    std::string name;  // of a barrier or a gather; the key for which a lookup waits
    TimePoint deadline{};
    Rank publisher{};  // of a lookup of one value, if known
    // A lookup of many values: their topic, and who publishes them. Those before `place` were there
    // when it was moved.
    std::string topic{};
    std::vector<Rank> publishers{};
    std::size_t place = 0;
  };

  // Takes the place of an earlier request of the rank.
  void open(Rank rank, Request request);
  // Does nothing if the rank has no request.
  void close(Rank rank);
  // The open lookup of a rank waits for the key `name` of the publisher at `place` from now on.
  void await(Rank rank, std::size_t place, std::string name);
  // The request of a rank; null if it has none.
  const Request* find(Rank rank) const;

  // The ranks with such a request, ascending.
  std::vector<Rank> waiting(MessageType type, const std::string& name) const;
  std::size_t count(MessageType type, const std::string& name) const;
  // The names of all requests of a type.
  std::vector<std::string> names(MessageType type) const;
  // The ranks with any request, ascending.
  std::vector<Rank> all() const;

  // The ranks whose requests' deadlines have passed.
  std::vector<Rank> due(TimePoint now) const;
  // The earliest deadline or `otherwise`, whichever is earlier.
  TimePoint next(TimePoint otherwise) const;

 private:
  using Key = std::pair<MessageType, std::string>;

  void unlist(Rank rank, const Request& request);

  std::map<Rank, Request> requests_;
  std::map<Key, std::set<Rank>> ranks_;
  std::set<std::pair<TimePoint, Rank>> deadlines_;
};

}  // namespace dunlin::bootstrap
