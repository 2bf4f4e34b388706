// CheckpointInventory: the checkpoint files that the members of a job have found, and which of them
// make up complete checkpoints. checkpoint_search.h has the rules. A value; it does not
// communicate.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "apps/checkpoint_search.h"
#include "runtime/bytes.h"

namespace dunlin {

// What a member has found of the files that it reads.
struct CheckpointReport {
  std::string host;
  std::vector<SavedState> states;
  std::map<CheckpointName, std::string> problems;  // of files that cannot be used

  Bytes encode() const;
  static Result<CheckpointReport> decode(std::span<const std::byte> bytes);
};

class CheckpointInventory {
 public:
  // Borrows the search for its lifetime.
  explicit CheckpointInventory(const CheckpointSearch& search) : search_(search) {}

  // The member that reads the file of this saved rank. With as many ranks as have saved, a rank
  // reads its own files alone, and nobody reads those of a dead rank.
  Rank reader_of(const CheckpointName& name) const;
  // The saved ranks whose states fall to this member.
  std::vector<std::uint32_t> share_of(Rank member, std::uint32_t saved_ranks) const;

  // To be called with the reports of all members, in their order.
  void add(CheckpointReport report);

  // The checkpoint to continue from; without its lists for single members.
  std::optional<FoundCheckpoint> latest() const;

  // Why the checkpoints that are later than the one of latest() are not complete, one text for a
  // checkpoint; the latest few. `seen` says which rank finds a file that its reader does not find.
  using Seen = std::map<CheckpointName, Rank>;
  std::vector<std::string> incomplete(const Seen& seen) const;
  // "rank 2 on HOST does not find FILE". A valid `finder` is a rank that does find it.
  std::string not_found(Rank seeker, const CheckpointName& name, Rank finder) const;
  // The files that the texts of incomplete() call missing. Where ranks need not have the same
  // iteration, that of the name is 0 and stands for any.
  std::vector<CheckpointName> missing() const;

 private:
  // Run, ranks, and iteration (0 where it need not be the same). The latest one comes last.
  using Key = std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>;
  using States = std::map<std::uint32_t, SavedState>;  // by rank

  std::vector<CheckpointName> lacking(const Key& key, const States& states) const;
  std::string known_problem(const CheckpointName& name) const;  // empty: the file is missing
  std::string problem_with(const CheckpointName& name, const Seen& seen) const;
  std::string path_of(const CheckpointName& name) const;

  const CheckpointSearch& search_;
  std::vector<CheckpointReport> reports_;
  std::map<Key, States> checkpoints_;
};

}  // namespace dunlin
