#include "tests/guest/soak/footprint.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace dunlin::soak {
namespace {

// A number from /proc/self/status, or 0 if there is no such line.
std::int64_t number_of(const std::string& status, std::string_view name) {
  const auto line = status.find(fmt::format("\n{}:", name));
  return line == std::string::npos ? 0 : std::stoll(status.substr(line + name.size() + 2));
}

}  // namespace

Result<Footprint> Footprint::take() {
  malloc_trim(0);
  Footprint taken;
  std::error_code error;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd", error);
  if (error) return Status::from_errno("/proc/self/fd", error.value());
  // The descriptor that reads the directory does not count.
  taken.descriptors = std::distance(begin(descriptors), end(descriptors)) - 1;
  std::ifstream maps("/proc/self/maps");
  taken.mappings =
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
  std::ifstream file("/proc/self/status");
  std::stringstream status;
  status << file.rdbuf();
  taken.threads = number_of(status.str(), "Threads");
  taken.resident_kib = number_of(status.str(), "VmRSS");
  taken.pinned_kib = number_of(status.str(), "VmPin");
  if (taken.mappings == 0 || taken.resident_kib == 0)
    return Status(Code::kUnavailable, "/proc/self can't be read");
  return taken;
}

std::string Footprint::to_string() const {
  return fmt::format("{} descriptors, {} threads, {} mappings, {} KiB resident, {} KiB pinned",
                     descriptors, threads, mappings, resident_kib, pinned_kib);
}

Status check_growth(const Footprint& before, const Footprint& now, const Slack& slack) {
  const bool is_within = now.descriptors <= before.descriptors && now.threads <= before.threads &&
                         now.mappings <= before.mappings + slack.mappings &&
                         now.resident_kib <= before.resident_kib + slack.resident_kib &&
                         now.pinned_kib <= before.pinned_kib;
  if (is_within) return Status::ok();
  return {Code::kResourceExhausted,
          fmt::format("this process has {} and had {} (slack: {} mappings, {} KiB)",
                      now.to_string(), before.to_string(), slack.mappings, slack.resident_kib)};
}

}  // namespace dunlin::soak
