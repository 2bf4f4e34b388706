#include "apps/checkpoint_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>

namespace dunlin {
namespace {

namespace fs = std::filesystem;

// Takes a number and the text behind it from the front of `text`.
template <typename Number>
bool take(std::string_view& text, Number& number, std::string_view behind) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  if (!text.starts_with(behind)) return false;
  text.remove_prefix(behind.size());
  return true;
}

// `tail` is what follows the base and its dot. A number with leading zeros is none of ours.
std::optional<CheckpointName> parse(std::string_view tail) {
  CheckpointName name;
  std::string_view rest = tail;
  const bool is_read = take(rest, name.rank, "-of-") && take(rest, name.ranks, ".") &&
                       take(rest, name.iteration, "") && rest.empty();
  if (!is_read || name.rank >= name.ranks) return std::nullopt;
  if (checkpoint_path("", name) != fmt::format(".{}", tail)) return std::nullopt;
  return name;
}

}  // namespace

std::uint64_t new_run() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string checkpoint_path(const std::string& base, const CheckpointName& name) {
  return fmt::format("{}.{}-of-{}.{}", base, name.rank, name.ranks, name.iteration);
}

std::vector<CheckpointName> checkpoint_names(const std::string& base) {
  const fs::path path(base);
  const std::string prefix = path.filename().string() + ".";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<CheckpointName> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (const auto parsed = parse(std::string_view(name).substr(prefix.size())))
      found.push_back(*parsed);
  }
  std::ranges::sort(found);
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

}  // namespace dunlin
