#include "apps/checkpoint_inventory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace dunlin {
namespace {

// A message tells of so many checkpoints, and of so many files of each.
constexpr std::size_t kMostCheckpoints = 3;
constexpr std::size_t kMostFiles = 3;

void write(ByteWriter& writer, const CheckpointName& name) {
  writer.number(name.rank).number(name.ranks).number(name.iteration);
}

CheckpointName read_name(ByteReader& reader) {
  CheckpointName name;
  name.rank = reader.number<std::uint32_t>();
  name.ranks = reader.number<std::uint32_t>();
  name.iteration = reader.number<std::uint64_t>();
  return name;
}

}  // namespace

Bytes CheckpointReport::encode() const {
  ByteWriter writer;
  writer.text(host).number(static_cast<std::uint32_t>(states.size()));
  for (const SavedState& state : states) {
    write(writer, state.name);
    writer.number(state.run).number(state.done);
  }
  writer.number(static_cast<std::uint32_t>(problems.size()));
  for (const auto& [name, problem] : problems) {
    write(writer, name);
    writer.text(problem);
  }
  return writer.take();
}

Result<CheckpointReport> CheckpointReport::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  CheckpointReport report;
  report.host = reader.text();
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    SavedState state;
    state.name = read_name(reader);
    state.run = reader.number<std::uint64_t>();
    state.done = reader.number<std::uint64_t>();
    report.states.push_back(state);
  }
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    const CheckpointName name = read_name(reader);
    report.problems[name] = reader.text();
  }
  if (!reader.at_end())
    return Status(Code::kCorrupted, "a rank's list of checkpoints is cut short");
  const auto is_sound = [](const CheckpointName& name) { return name.rank < name.ranks; };
  if (!std::ranges::all_of(report.states, is_sound, &SavedState::name) ||
      !std::ranges::all_of(report.problems, is_sound, [](const auto& each) { return each.first; }))
    return Status(Code::kCorrupted, "a rank's list of checkpoints names a rank that none has");
  return report;
}

Rank CheckpointInventory::reader_of(const CheckpointName& name) const {
  if (name.ranks == search_.ranks) return Rank(static_cast<int>(name.rank));
  return search_.members[name.rank % search_.members.size()];
}

std::vector<std::uint32_t> CheckpointInventory::share_of(Rank member,
                                                         std::uint32_t saved_ranks) const {
  if (saved_ranks == search_.ranks) return {static_cast<std::uint32_t>(member.value())};
  const auto members = static_cast<std::uint32_t>(search_.members.size());
  const auto place = std::ranges::lower_bound(search_.members, member) - search_.members.begin();
  const auto first = static_cast<std::uint32_t>(place);
  if (first >= saved_ranks) return {first % saved_ranks};
  std::vector<std::uint32_t> share;
  for (std::uint64_t rank = first; rank < saved_ranks; rank += members) {
    share.push_back(static_cast<std::uint32_t>(rank));
  }
  return share;
}

void CheckpointInventory::add(CheckpointReport report) {
  for (const SavedState& state : report.states) {
    const std::uint64_t iteration = search_.needs_same_iteration ? state.name.iteration : 0;
    States& states = checkpoints_[{state.run, state.name.ranks, iteration}];
    const auto [place, is_first] = states.emplace(state.name.rank, state);
    if (!is_first && place->second.name < state.name) place->second = state;
  }
  reports_.push_back(std::move(report));
}

// Returns the first few.
std::vector<CheckpointName> CheckpointInventory::lacking(const Key& key,
                                                         const States& states) const {
  std::vector<CheckpointName> names;
  const auto [run, ranks, iteration] = key;
  for (std::uint32_t rank = 0; rank < ranks && names.size() <= kMostFiles; ++rank) {
    const CheckpointName name{rank, ranks, iteration};
    const bool is_needed = std::ranges::binary_search(search_.members, reader_of(name));
    if (is_needed && !states.contains(rank)) names.push_back(name);
  }
  return names;
}

std::optional<FoundCheckpoint> CheckpointInventory::latest() const {
  for (auto each = checkpoints_.rbegin(); each != checkpoints_.rend(); ++each) {
    const auto& [key, states] = *each;
    if (!lacking(key, states).empty()) continue;
    FoundCheckpoint found;
    found.run = std::get<0>(key);
    found.iterations.resize(std::get<1>(key));
    for (const auto& [rank, state] : states) {
      found.iterations[rank] = state.name.iteration;
      found.done += static_cast<double>(state.done);
    }
    return found;
  }
  return std::nullopt;
}

std::vector<std::string> CheckpointInventory::incomplete(const Seen& seen) const {
  std::vector<std::string> texts;
  for (auto each = checkpoints_.rbegin(); each != checkpoints_.rend(); ++each) {
    const auto& [key, states] = *each;
    std::vector<CheckpointName> names = lacking(key, states);
    if (names.empty() || texts.size() == kMostCheckpoints) return texts;
    const bool has_more = names.size() > kMostFiles;
    if (has_more) names.pop_back();
    std::vector<std::string> problems;
    for (const CheckpointName& name : names) problems.push_back(problem_with(name, seen));
    const auto [run, ranks, iteration] = key;
    const std::string which =
        search_.needs_same_iteration ? fmt::format("iteration {}, ", iteration) : "";
    texts.push_back(fmt::format("{}saved by {} rank{}: {}{}", which, ranks, ranks == 1 ? "" : "s",
                                fmt::join(problems, ", "), has_more ? ", and others" : ""));
  }
  if (!checkpoints_.empty()) return texts;
  for (const CheckpointReport& report : reports_) {
    for (const auto& [name, problem] : report.problems) {
      if (texts.size() < kMostCheckpoints) texts.push_back(problem);
    }
  }
  return texts;
}

std::vector<CheckpointName> CheckpointInventory::missing() const {
  std::vector<CheckpointName> names;
  std::size_t checkpoints = 0;
  for (auto each = checkpoints_.rbegin(); each != checkpoints_.rend(); ++each) {
    const auto lacking_here = lacking(each->first, each->second);
    if (lacking_here.empty() || checkpoints++ == kMostCheckpoints) break;
    for (const CheckpointName& name : lacking_here) {
      if (known_problem(name).empty()) names.push_back(name);
    }
  }
  return names;
}

std::string CheckpointInventory::known_problem(const CheckpointName& name) const {
  const auto is_it = [&](const CheckpointName& other) {
    return other.rank == name.rank && other.ranks == name.ranks &&
           (other.iteration == name.iteration || !search_.needs_same_iteration);
  };
  for (const CheckpointReport& report : reports_) {
    for (const auto& [other, problem] : report.problems) {
      if (is_it(other)) return problem;
    }
    for (const SavedState& state : report.states) {
      if (!is_it(state.name)) continue;
      return fmt::format("{} is of another run", checkpoint_path(search_.base, state.name));
    }
  }
  return {};
}

std::string CheckpointInventory::problem_with(const CheckpointName& name, const Seen& seen) const {
  std::string known = known_problem(name);
  if (!known.empty()) return known;
  const auto finder = seen.find(name);
  return not_found(reader_of(name), name, finder == seen.end() ? Rank() : finder->second);
}

std::string CheckpointInventory::not_found(Rank seeker, const CheckpointName& name,
                                           Rank finder) const {
  const auto tell = [this](Rank rank) {
    const auto place = std::ranges::lower_bound(search_.members, rank) - search_.members.begin();
    return fmt::format("rank {} on {}", rank.value(),
                       reports_[static_cast<std::size_t>(place)].host);
  };
  std::string text = fmt::format("{} does not find {}", tell(seeker), path_of(name));
  if (finder == Rank()) return text;
  return fmt::format("{}, but {} does (copy it, or use a folder that all hosts share)", text,
                     tell(finder));
}

std::string CheckpointInventory::path_of(const CheckpointName& name) const {
  if (search_.needs_same_iteration) return checkpoint_path(search_.base, name);
  return fmt::format("{}.{}-of-{}.ITERATION", search_.base, name.rank, name.ranks);
}

}  // namespace dunlin
