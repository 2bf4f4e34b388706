// LookupBook: which values the open lookups of ranks still need, and the answers. It belongs to a
// JobLedger.
//
// A lookup of many values waits for the first one that is missing, then for the next one. So what
// it costs does not grow with the order in which the values are published.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "runtime/bootstrap/request_book.h"
#include "runtime/bootstrap/value_book.h"
#include "runtime/bootstrap/wire.h"
#include "runtime/rank.h"

namespace dunlin::bootstrap {

class LookupBook {
 public:
  // Both must outlive this object.
  LookupBook(RequestBook& requests, const ValueBook& values)
      : requests_(requests), values_(values) {}

  // The request that a kLookup asks for.
  static RequestBook::Request request_of(const Message& lookup, TimePoint deadline);

  // The answer to the open lookup of a rank. Nothing while a value is missing: the request has the
  // name of its key then.
  std::optional<Message> answer(Rank asker);
  // The first rank that `is_gone` and that has not published what the open lookup of `asker` needs
  // from it.
  std::optional<Rank> lost(Rank asker, const std::function<bool(Rank)>& is_gone) const;

 private:
  // What the publisher at this place of the request's list has published; null if it has not.
  const Bytes* value(const RequestBook::Request& request, std::size_t place) const;

  RequestBook& requests_;
  const ValueBook& values_;
};

}  // namespace dunlin::bootstrap
