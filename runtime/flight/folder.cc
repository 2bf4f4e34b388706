#include "runtime/flight/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "runtime/bootstrap/process_id.h"
#include "runtime/fd.h"
#include "runtime/flight/reader.h"
#include "runtime/fnv.h"

namespace dunlin::flight {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "rank-";
constexpr std::size_t kMostNameBytes = 64;
// A folder that is younger may belong to a job whose ranks are just creating their records.
constexpr auto kStartTime = std::chrono::minutes(1);

// Another user could have made the folder in /dev/shm, to read the records or to have them written
// elsewhere.
Status make_own_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return Status::ok();
  if (errno != EEXIST) return Status::from_errno("creating " + path, errno);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Status::from_errno(path, errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 022) == 0)
    return Status::ok();
  return {Code::kPermissionDenied,
          fmt::format("{} is no folder that only this user can write to", path)};
}

template <std::size_t kSize>
void set_text(char (&field)[kSize], std::string_view text) {
  text.copy(field, kSize - 1);
}

// The file is new and zeroed.
void fill_header(File& file, const RecordIdentity& identity) {
  Header& header = file.header;
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  char host[sizeof header.host] = {};
  gethostname(host, sizeof host - 1);
  set_text(header.job, identity.job);
  set_text(header.host, host);
  set_text(header.program, program_invocation_short_name);
  set_text(header.process, bootstrap::ProcessId::of_self().to_string());
  header.rank = static_cast<std::uint64_t>(identity.rank.value());
  header.size = static_cast<std::uint64_t>(identity.size);
  header.began_ns = static_cast<std::uint64_t>(identity.began.time_since_epoch().count());
  header.began_unix_ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(unix_time).count());
  file.counts.seen_ns = header.began_ns.load();
  header.version = kVersion;
  header.file_bytes = sizeof(File);
  // A reader that sees it sees all that was written above.
  header.magic.store(kMagic, std::memory_order_release);
}

std::optional<int> rank_of(std::string_view name) {
  if (!name.starts_with(kFilePrefix)) return std::nullopt;
  const auto rank = parse_integer(name.substr(kFilePrefix.size()));
  if (!rank || *rank < 0 || *rank > INT32_MAX) return std::nullopt;
  return static_cast<int>(*rank);
}

bool is_in_use(const JobFolder& job) {
  std::error_code error;
  const auto changed = fs::last_write_time(job.path, error);
  if (error || fs::file_time_type::clock::now() - changed < kStartTime) return true;
  return std::any_of(job.records.begin(), job.records.end(), [](const std::string& path) {
    const auto record = Record::open(path);
    return record && record->process_state() != ProcessState::kEnded;
  });
}

}  // namespace

std::string base_folder(const Config& config) {
  if (!config.flight.empty() && config.flight != "off") return config.flight;
  return fmt::format("/dev/shm/dunlin-flight-{}", geteuid());
}

std::string job_name(std::string_view job_id, const JobKey& key) {
  std::string name;
  for (const char each : job_id.substr(0, kMostNameBytes)) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-' ||
                          each == '_' || (each == '.' && !name.empty());
    name += is_plain ? each : '_';
  }
  // 32 bits that all of the key's 256 bits have gone into: they tell next to nothing of it.
  Fnv hash;
  for (const std::byte each : key) hash.add(static_cast<std::uint64_t>(each));
  return fmt::format("{}-{:08x}", name.empty() ? "job" : name,
                     static_cast<std::uint32_t>(hash.value() >> 32));
}

Result<CreatedRecord> create_record(const std::string& folder, const RecordIdentity& identity) {
  DUNLIN_TRY(make_own_folder(fs::path(folder).parent_path().string()));
  DUNLIN_TRY(make_own_folder(folder));
  CreatedRecord created;
  created.path = fmt::format("{}/{}{}", folder, kFilePrefix, identity.rank.value());
  unlink(created.path.c_str());
  const Fd fd(
      ::open(created.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.is_open()) return Status::from_errno("creating " + created.path, errno);
  // Where a file system is full, a store to the mapping would end the process.
  int error = posix_fallocate(fd.get(), 0, sizeof(File));
  void* const address =
      error == 0 ? mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0)
                 : MAP_FAILED;
  if (address == MAP_FAILED) {
    if (error == 0) error = errno;
    unlink(created.path.c_str());
    Status status = Status::from_errno("allocating " + created.path, error);
    if (error != ENOSPC) return status;
    return Status(Code::kResourceExhausted, std::string(status.message()));
  }
  created.file = new (address) File;  // trivial: the words keep their zeros
  fill_header(*created.file, identity);
  return created;
}

void remove_record(const std::string& path) {
  unlink(path.c_str());
  rmdir(fs::path(path).parent_path().c_str());  // fails unless it is empty
}

std::vector<std::string> list_records(const std::string& folder) {
  std::vector<std::pair<int, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    if (const auto rank = rank_of(each->path().filename().string()))
      found.emplace_back(*rank, each->path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> records;
  for (auto& [rank, path] : found) records.push_back(std::move(path));
  return records;
}

std::vector<JobFolder> list_jobs(const std::string& base) {
  std::vector<std::pair<fs::file_time_type, JobFolder>> found;
  std::error_code error;
  for (fs::directory_iterator each(base, error), end; !error && each != end;
       each.increment(error)) {
    std::error_code ignored;
    if (!fs::is_directory(each->symlink_status(ignored))) continue;
    const std::string path = each->path().string();
    found.emplace_back(fs::last_write_time(path, ignored),
                       JobFolder{each->path().filename().string(), path, list_records(path)});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.name < b.second.name;
  });
  std::vector<JobFolder> jobs;
  for (auto& [time, job] : found) jobs.push_back(std::move(job));
  return jobs;
}

void remove_job(const JobFolder& job) {
  for (const std::string& path : job.records) unlink(path.c_str());
  rmdir(job.path.c_str());
}

void remove_old_jobs(const std::string& base, std::string_view own) {
  std::error_code error;
  const fs::space_info space = fs::space(base, error);
  const std::size_t most_bytes =
      error ? kKeptBytes : std::min<std::size_t>(kKeptBytes, space.capacity / kKeptPart);
  std::size_t jobs = 0;
  std::size_t bytes = 0;
  for (const JobFolder& job : list_jobs(base)) {
    if (job.name == own) continue;
    ++jobs;
    bytes += job.records.size() * sizeof(File);
    if ((jobs > kKeptJobs || bytes > most_bytes) && !is_in_use(job)) remove_job(job);
  }
}

}  // namespace dunlin::flight
