#include "apps/svm/program/checkpoints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "runtime/log.h"

namespace dunlin::svm {
namespace {

namespace fs = std::filesystem;

// The checkpoints of a rank that can be loaded, by exchange.
std::map<std::uint64_t, Checkpoint> load_all(const std::string& base, Rank rank) {
  std::map<std::uint64_t, Checkpoint> found;
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
      found.emplace(exchange, std::move(checkpoint).value());
    } else {
      DUNLIN_WARN("{}", checkpoint.status().to_string());
    }
  }
  return found;
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
                                          Duration timeout) {
  auto own = load_all(base, bootstrap.rank());
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(own.size()));
  for (const auto& [exchange, checkpoint] : own) writer.number(exchange);
  DUNLIN_TRY(bootstrap.publish(key(bootstrap.rank()), writer.take()));

  std::set<std::uint64_t> common;
  for (const auto& [exchange, checkpoint] : own) common.insert(exchange);
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    DUNLIN_ASSIGN(const Bytes list, bootstrap.lookup(key(Rank(rank)), timeout));
    ByteReader reader(list);
    std::set<std::uint64_t> theirs;
    for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
      theirs.insert(reader.number<std::uint64_t>());
    }
    std::erase_if(common, [&](std::uint64_t exchange) { return !theirs.contains(exchange); });
  }
  if (common.empty()) {
    return Status(
        Code::kNotFound,
        fmt::format("no checkpoint '{}' that all {} ranks have: rank {} has {} of its own", base,
                    bootstrap.size(), bootstrap.rank().value(), own.size()));
  }
  return std::move(own.at(*common.rbegin()));
}

}  // namespace dunlin::svm
