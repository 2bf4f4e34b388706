#include "apps/checkpoint_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "apps/checkpoint_inventory.h"
#include "apps/job.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<SavedState> read_checked(const std::string& base, const CheckpointName& name,
                                const StateReader& read) {
  const std::string path = checkpoint_path(base, name);
  DUNLIN_ASSIGN(const SavedState state, read(path));
  if (state.name == name) return state;
  return Status(Code::kCorrupted,
                fmt::format("{} has another name than it was saved under, which ended in {}", path,
                            checkpoint_path("", state.name)));
}

// Reads the files whose reader is this rank.
CheckpointReport read_own(const CheckpointSearch& search, const CheckpointInventory& inventory,
                          const StateReader& read, Rank self) {
  CheckpointReport report;
  report.host = host_name();
  for (const CheckpointName& name : checkpoint_names(search.base)) {
    if (inventory.reader_of(name) != self) continue;
    const auto state = read_checked(search.base, name, read);
    if (state) {
      report.states.push_back(*state);
    } else {
      DUNLIN_WARN("{}", state.status().to_string());
      report.problems[name] = state.status().message();
    }
  }
  return report;
}

// Returns what each member has told, in their order.
Result<std::vector<Bytes>> tell_all(const CheckpointSearch& search, const std::string& what,
                                    const Bytes& own, Bootstrap& bootstrap) {
  const auto key = [&](Rank rank) {
    return fmt::format("{}/{}/{}", search.topic, what, rank.value());
  };
  DUNLIN_TRY(bootstrap.publish(key(bootstrap.rank()), own));
  std::vector<Bytes> told;
  for (const Rank rank : search.members) {
    DUNLIN_ASSIGN(Bytes theirs,
                  lookup_among(bootstrap, search.members, rank, key(rank), search.timeout));
    told.push_back(std::move(theirs));
  }
  return told;
}

// Collective. Returns which rank finds the files that their readers do not find.
Result<CheckpointInventory::Seen> find_elsewhere(const CheckpointSearch& search,
                                                 const CheckpointInventory& inventory,
                                                 Bootstrap& bootstrap) {
  const std::vector<CheckpointName> missing = inventory.missing();
  const std::vector<CheckpointName> here = checkpoint_names(search.base);
  ByteWriter own;
  for (const CheckpointName& name : missing) {
    const bool is_here = std::ranges::any_of(here, [&](const CheckpointName& other) {
      return other.rank == name.rank && other.ranks == name.ranks &&
             (other.iteration == name.iteration || !search.needs_same_iteration);
    });
    own.number(static_cast<std::uint8_t>(is_here));
  }
  DUNLIN_ASSIGN(const auto told, tell_all(search, "elsewhere", own.take(), bootstrap));
  CheckpointInventory::Seen seen;
  for (std::size_t member = 0; member < told.size(); ++member) {
    ByteReader reader(told[member]);
    for (const CheckpointName& name : missing) {
      if (reader.number<std::uint8_t>() != 0) seen.emplace(name, search.members[member]);
    }
  }
  return seen;
}

// Collective. All ranks have the same reports, and so agree that there is nothing to continue from.
Status nothing_found(const CheckpointSearch& search, const CheckpointInventory& inventory,
                     Bootstrap& bootstrap) {
  DUNLIN_ASSIGN(const auto seen, find_elsewhere(search, inventory, bootstrap));
  const auto texts = inventory.incomplete(seen);
  if (texts.empty()) {
    return {Code::kNotFound, fmt::format("there is no checkpoint '{0}': no rank finds a file "
                                         "{0}.RANK-of-RANKS.ITERATION",
                                         search.base)};
  }
  return {Code::kNotFound, fmt::format("there is no complete checkpoint '{}': {}", search.base,
                                       fmt::join(texts, "; "))};
}

}  // namespace

Result<FoundCheckpoint> find_checkpoint(const CheckpointSearch& search, const StateReader& read,
                                        Bootstrap& bootstrap) {
  CheckpointInventory inventory(search);
  const CheckpointReport own = read_own(search, inventory, read, bootstrap.rank());
  DUNLIN_ASSIGN(const auto told, tell_all(search, "checkpoints", own.encode(), bootstrap));
  for (const Bytes& theirs : told) {
    DUNLIN_ASSIGN(CheckpointReport report, CheckpointReport::decode(theirs));
    inventory.add(std::move(report));
  }
  auto found = inventory.latest();
  if (!found) return nothing_found(search, inventory, bootstrap);
  if (bootstrap.rank() == search.members.front()) {
    for (const std::string& text : inventory.incomplete({}))
      DUNLIN_WARN("passing over an incomplete checkpoint '{}': {}", search.base, text);
  }
  found->own = inventory.share_of(bootstrap.rank(), found->ranks());
  const CheckpointName first = found->name(found->own.front());
  found->has_read = inventory.reader_of(first) == bootstrap.rank();
  if (!found->has_read && access(checkpoint_path(search.base, first).c_str(), F_OK) != 0) {
    return Status(Code::kNotFound,
                  inventory.not_found(bootstrap.rank(), first, inventory.reader_of(first)));
  }
  return std::move(*found);
}

std::set<std::uint64_t> saved_iterations(const std::string& base, std::uint32_t rank,
                                         std::uint32_t ranks, std::uint64_t run,
                                         const StateReader& read) {
  std::set<std::uint64_t> iterations;
  for (const CheckpointName& name : checkpoint_names(base)) {
    if (name.rank != rank || name.ranks != ranks) continue;
    const auto state = read_checked(base, name, read);
    if (state && state->run == run) iterations.insert(name.iteration);
  }
  return iterations;
}

}  // namespace dunlin
