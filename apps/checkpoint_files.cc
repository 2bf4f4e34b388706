#include "apps/checkpoint_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>

#include "apps/job.h"

namespace dunlin {
namespace {

namespace fs = std::filesystem;

Bytes encode(const std::set<CheckpointMoment>& own) {
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(own.size()));
  for (const auto& [run, iteration] : own) writer.number(run).number(iteration);
  return writer.take();
}

std::set<CheckpointMoment> decode(const Bytes& list) {
  ByteReader reader(list);
  std::set<CheckpointMoment> moments;
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    const auto run = reader.number<std::uint64_t>();
    moments.emplace(run, reader.number<std::uint64_t>());
  }
  return moments;
}

}  // namespace

std::uint64_t new_run() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string checkpoint_path(const std::string& base, Rank rank, std::uint64_t iteration) {
  return fmt::format("{}.{}.{}", base, rank.value(), iteration);
}

std::vector<std::string> checkpoint_files(const std::string& base, Rank rank) {
  const fs::path path(base);
  const std::string prefix = fmt::format("{}.{}.", path.filename().string(), rank.value());
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint64_t iteration = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data() + prefix.size(), end, iteration).ptr == end) {
      found.push_back(entry.path().string());
    }
  }
  return found;
}

void CheckpointRotation::note_saved(std::uint64_t iteration) {
  if (iteration == last_) return;
  if (before_last_ != 0) unlink(path(before_last_).c_str());
  before_last_ = last_;
  last_ = iteration;
}

void CheckpointRotation::resume(const std::set<std::uint64_t>& own, std::uint64_t iteration) {
  for (const std::uint64_t saved : own) {
    if (saved > iteration) {
      unlink(path(saved).c_str());
    } else {
      note_saved(saved);
    }
  }
}

Result<CheckpointMoment> common_checkpoint(const std::string& topic, const std::string& base,
                                           const std::set<CheckpointMoment>& own,
                                           Bootstrap& bootstrap, const std::vector<Rank>& members,
                                           bool needs_same_iteration, Duration timeout) {
  const auto key = [&](Rank rank) { return fmt::format("{}/checkpoints/{}", topic, rank.value()); };
  DUNLIN_TRY(bootstrap.publish(key(bootstrap.rank()), encode(own)));
  std::map<CheckpointMoment, int> holders;  // how many ranks could go on there
  for (const Rank rank : members) {
    DUNLIN_ASSIGN(const Bytes list, lookup_among(bootstrap, members, rank, key(rank), timeout));
    std::set<CheckpointMoment> places;
    for (const auto& [run, iteration] : decode(list)) {
      places.emplace(run, needs_same_iteration ? iteration : 0);
    }
    for (const CheckpointMoment& place : places) ++holders[place];
  }
  std::erase_if(holders,
                [&](const auto& held) { return held.second != static_cast<int>(members.size()); });
  if (holders.empty()) {
    return Status(
        Code::kNotFound,
        fmt::format("no checkpoint '{}' that all {} ranks have: rank {} has {} of its own", base,
                    members.size(), bootstrap.rank().value(), own.size()));
  }
  const CheckpointMoment latest = holders.rbegin()->first;
  if (needs_same_iteration) return latest;
  return *std::prev(own.lower_bound({latest.first + 1, 0}));
}

}  // namespace dunlin
