#include "apps/svm/program/checkpoints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "runtime/log.h"

namespace dunlin::svm {
namespace {

namespace fs = std::filesystem;

// When the run began, and the exchange in it.
using Moment = std::pair<std::uint64_t, std::uint64_t>;

// The checkpoints of a rank that can be loaded.
std::map<Moment, Checkpoint> load_all(const std::string& base, Rank rank) {
  std::map<Moment, Checkpoint> found;
  const fs::path path(base);
  const std::string prefix = fmt::format("{}.{}.", path.filename().string(), rank.value());
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint64_t exchange = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data() + prefix.size(), end, exchange).ptr != end) continue;
    auto checkpoint = load_checkpoint(entry.path().string());
    if (checkpoint) {
      const Moment moment{checkpoint->run, checkpoint->iteration};
      found.emplace(moment, std::move(checkpoint).value());
    } else {
      DUNLIN_WARN("{}", checkpoint.status().to_string());
    }
  }
  return found;
}

Bytes encode(const std::map<Moment, Checkpoint>& own) {
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(own.size()));
  for (const auto& [moment, checkpoint] : own) writer.number(moment.first).number(moment.second);
  return writer.take();
}

std::set<Moment> decode(const Bytes& list) {
  ByteReader reader(list);
  std::set<Moment> moments;
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    const auto run = reader.number<std::uint64_t>();
    moments.emplace(run, reader.number<std::uint64_t>());
  }
  return moments;
}

std::string key(Rank rank) {
  return fmt::format("svm/checkpoints/{}", rank.value());
}

}  // namespace

std::string checkpoint_path(const std::string& base, Rank rank, std::uint64_t exchange) {
  return fmt::format("{}.{}.{}", base, rank.value(), exchange);
}

Status CheckpointWriter::save(const Checkpoint& checkpoint) {
  DUNLIN_TRY(save_checkpoint(checkpoint_path(base_, rank_, checkpoint.iteration), checkpoint));
  if (before_last_ != 0) unlink(checkpoint_path(base_, rank_, before_last_).c_str());
  before_last_ = last_;
  last_ = checkpoint.iteration;
  return Status::ok();
}

Result<Checkpoint> load_common_checkpoint(const std::string& base, Bootstrap& bootstrap,
                                          bool needs_same_exchange, Duration timeout) {
  auto own = load_all(base, bootstrap.rank());
  DUNLIN_TRY(bootstrap.publish(key(bootstrap.rank()), encode(own)));
  std::map<Moment, int> holders;  // how many ranks could go on there
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    DUNLIN_ASSIGN(const Bytes list, bootstrap.lookup(key(Rank(rank)), timeout));
    std::set<Moment> places;
    for (const auto& [run, exchange] : decode(list)) {
      places.emplace(run, needs_same_exchange ? exchange : 0);
    }
    for (const Moment& place : places) ++holders[place];
  }
  std::erase_if(holders, [&](const auto& held) { return held.second != bootstrap.size(); });
  if (holders.empty()) {
    return Status(
        Code::kNotFound,
        fmt::format("no checkpoint '{}' that all {} ranks have: rank {} has {} of its own", base,
                    bootstrap.size(), bootstrap.rank().value(), own.size()));
  }
  const Moment latest = holders.rbegin()->first;
  if (needs_same_exchange) return std::move(own.at(latest));
  return std::move(std::prev(own.lower_bound({latest.first + 1, 0}))->second);
}

}  // namespace dunlin::svm
