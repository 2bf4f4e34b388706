// GatherBook: the records that ranks have contributed to gathers (Bootstrap::gather). It belongs to
// a JobLedger.
//
// Once all records of a gather have come, they are stored side by side, and the answers of all
// ranks share these bytes until they are sent. They stay until the gather is released, so that a
// call that has timed out can be repeated. A gather takes no memory for records that have not come.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class GatherBook {
 public:
  explicit GatherBook(int size) : size_(static_cast<std::size_t>(size)) {}

  // Whether the rank has contributed to the gather before.
  bool has(Rank rank, const std::string& name) const;
  // Adds the record of a rank: text: name; value: the record; ranks: the group, empty for all ranks
  // of the job. kInvalidArgument if the call does not match those before it.
  Status add(Rank from, const Message& message);
  // All records in the order of the group; null while some are missing.
  std::shared_ptr<const Bytes> records(const std::string& name) const;
  // Forgets a gather. Returns the ranks that have contributed to it, and what the coordinator has
  // kept for each of them (Allowance::bytes_of).
  struct Forgotten {
    std::vector<Rank> contributors;
    std::size_t bytes = 0;
  };
  Forgotten forget(const std::string& name);
  // The ranks of the group whose records are missing, in its order.
  std::vector<Rank> missing(const std::string& name) const;
  // The rank contributes nothing any more.
  void note_gone(Rank rank);
  // A rank that is gone and whose record is missing, if there is one.
  std::optional<Rank> gone(const std::string& name) const;

 private:
  struct Gather {
    std::vector<Rank> group;  // empty: all ranks of the job
    std::size_t record_bytes = 0;
    std::size_t members = 0;
    std::size_t kept_bytes = 0;                 // for each contributor
    Rank first{};                               // the rank that called first
    std::map<std::size_t, Bytes> parts;         // by place in the group, until all have come
    std::shared_ptr<const Bytes> records = {};  // once all have come
    std::vector<std::pair<Rank, std::size_t>> places = {};  // of the ranks of a group, by rank
    std::optional<Rank> gone = {};

    Rank rank(std::size_t place) const {
      return group.empty() ? Rank(static_cast<int>(place)) : group[place];
    }
    bool has(std::size_t place) const { return records != nullptr || parts.contains(place); }
  };

  Status begin(Rank from, const Message& message);
  // The place of a rank in the group; `members` if it does not belong to it.
  static std::size_t place(const Gather& gather, Rank rank);
  const Gather* find(const std::string& name) const;

  static bool lacks(const Gather& gather, Rank rank);

  std::size_t size_;
  std::map<std::string, Gather> gathers_;
  std::set<std::string> open_;  // those that lack records
  std::vector<Rank> gone_;
};

}  // namespace dunlin::bootstrap
