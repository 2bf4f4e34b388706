#include "runtime/flight/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
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
// Tells that a rank of this host has written the report on a missed deadline to its log.
constexpr const char* kReportedName = "reported";
constexpr std::size_t kMostNameBytes = 64;
// A folder that is younger may belong to a job whose ranks are just creating their records.
constexpr auto kStartTime = std::chrono::minutes(1);

// Whether the rank runs whose record has another version, or comes from another host, cannot be
// told. One that is older does not count.
constexpr auto kForeignTime = std::chrono::hours(24);
// The ranks of a host miss a deadline at about the same time. Later, a report is worth while again.
constexpr auto kReportTime = std::chrono::minutes(1);
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

// Another user could have made the folder in /dev/shm, or a link of its name, to read the records
// or to have files written or removed elsewhere. Everything in the folder is reached through the
// descriptor, which names the folder that was checked.
Result<Fd> open_own_folder(int at, const std::string& path) {
  Fd folder(openat(at, path.c_str(), kFolderFlags | O_NOFOLLOW));
  const int error = errno;
  const Status refusal(Code::kPermissionDenied,
                       fmt::format("{} is no folder that only this user can write to", path));
  if (!folder.is_open())
    return error == ENOTDIR || error == ELOOP ? refusal : Status::from_errno(path, error);
  struct stat info {};
  if (fstat(folder.get(), &info) != 0) return Status::from_errno(path, errno);
  if (info.st_uid != geteuid() || (info.st_mode & 022) != 0) return refusal;
  return folder;
}

Result<Fd> make_own_folder(int at, const std::string& path) {
  if (mkdirat(at, path.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::from_errno("creating " + path, errno);
  return open_own_folder(at, path);
}

std::vector<std::string> names_in(const Fd& folder) {
  std::vector<std::string> names;
  // Reading moves the position of a descriptor, so this takes one of its own.
  const int number = openat(folder.get(), ".", kFolderFlags);
  DIR* const stream = number < 0 ? nullptr : fdopendir(number);
  if (stream == nullptr) {
    if (number >= 0) close(number);
    return names;
  }
  while (const dirent* const entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(stream);
  return names;
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

// The version of the flight record with this name; nothing if it is a file of another kind.
std::optional<std::uint64_t> version_of(const Fd& folder, const std::string& name,
                                        timespec* changed = nullptr) {
  const Fd fd(openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd.is_open() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::uint64_t words[2] = {};
  static_assert(offsetof(Header, magic) == 0 && offsetof(Header, version) == sizeof words[0]);
  if (pread(fd.get(), words, sizeof words, 0) != sizeof words || words[0] != kMagic)
    return std::nullopt;
  if (changed != nullptr) *changed = info.st_mtim;
  return words[1];
}

// The names of a folder's records, by rank. Those of files that are none are left out.
std::vector<std::string> records_in(const Fd& folder) {
  std::vector<std::pair<int, std::string>> found;
  for (std::string& name : names_in(folder)) {
    const auto rank = rank_of(name);
    if (rank && version_of(folder, name)) found.emplace_back(*rank, std::move(name));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [rank, name] : found) names.push_back(std::move(name));
  return names;
}

bool is_older(const timespec& changed, std::chrono::seconds age) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec - changed.tv_sec > age.count();
}

bool is_in_use(const Fd& folder) {
  struct stat info {};
  if (fstat(folder.get(), &info) != 0 || !is_older(info.st_mtim, kStartTime)) return true;
  const std::vector<std::string> names = records_in(folder);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    timespec changed{};
    const auto version = version_of(folder, name, &changed);
    if (!version) return false;  // it has just been removed
    if (*version != kVersion) return !is_older(changed, kForeignTime);
    const auto record = Record::open_at(folder.get(), name);
    if (!record) return false;
    if (record->is_from_elsewhere()) return !is_older(changed, kForeignTime);
    return record->process_state() != ProcessState::kEnded;
  });
}

// The jobs in a folder, the newest first.
std::vector<JobFolder> jobs_in(const Fd& base, const std::string& path) {
  struct Found {
    timespec changed{};
    JobFolder job;
  };
  std::vector<Found> found;
  for (const std::string& name : names_in(base)) {
    const Fd folder(openat(base.get(), name.c_str(), kFolderFlags | O_NOFOLLOW));
    struct stat info {};
    if (!folder.is_open() || fstat(folder.get(), &info) != 0) continue;
    JobFolder job{name, path + "/" + name, {}};
    for (const std::string& record : records_in(folder))
      job.records.push_back(job.path + "/" + record);
    if (!job.records.empty()) found.push_back({info.st_mtim, std::move(job)});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    const auto of = [](const Found& each) {
      return std::pair(each.changed.tv_sec, each.changed.tv_nsec);
    };
    return of(a) != of(b) ? of(a) > of(b) : a.job.name < b.job.name;
  });
  std::vector<JobFolder> jobs;
  for (Found& each : found) jobs.push_back(std::move(each.job));
  return jobs;
}

// Removes what Dunlin has written, and the folder if nothing else is in it.
void remove_from(const Fd& base, const std::string& name, const Fd& folder) {
  for (const std::string& record : names_in(folder)) {
    const bool is_ours = rank_of(record).has_value() || record == kReportedName;
    if (is_ours && version_of(folder, record)) unlinkat(folder.get(), record.c_str(), 0);
  }
  unlinkat(base.get(), name.c_str(), AT_REMOVEDIR);
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
  const fs::path path(folder);
  DUNLIN_ASSIGN(const Fd base, make_own_folder(AT_FDCWD, path.parent_path().string()));
  DUNLIN_ASSIGN(const Fd job, make_own_folder(base.get(), path.filename().string()));
  const std::string name = fmt::format("{}{}", kFilePrefix, identity.rank.value());
  CreatedRecord created;
  created.path = folder + "/" + name;
  unlinkat(job.get(), name.c_str(), 0);
  const Fd fd(
      openat(job.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.is_open()) return Status::from_errno("creating " + created.path, errno);
  // Where a file system is full, a store to the mapping would end the process.
  int error = posix_fallocate(fd.get(), 0, sizeof(File));
  void* const address =
      error == 0 ? mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0)
                 : MAP_FAILED;
  if (address == MAP_FAILED) {
    if (error == 0) error = errno;
    unlinkat(job.get(), name.c_str(), 0);
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
  const Fd folder(::open(base.c_str(), kFolderFlags));
  return folder.is_open() ? jobs_in(folder, base) : std::vector<JobFolder>();
}

bool may_report(const std::string& folder) {
  const auto opened = open_own_folder(AT_FDCWD, folder);
  if (!opened) return true;
  struct stat info {};
  if (fstatat(opened->get(), kReportedName, &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!is_older(info.st_mtim, kReportTime)) return false;
    unlinkat(opened->get(), kReportedName, 0);
  }
  const Fd fd(openat(opened->get(), kReportedName,
                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.is_open()) return errno != EEXIST;
  // It begins as a record does, so that it can be told from a file that is not Dunlin's.
  const std::uint64_t words[] = {kMagic, kVersion};
  return pwrite(fd.get(), words, sizeof words, 0) == sizeof words;
}

void remove_job(const std::string& path) {
  const fs::path whole(path);
  const auto base = open_own_folder(AT_FDCWD, whole.parent_path().string());
  if (!base) return;
  const auto folder = open_own_folder(base->get(), whole.filename().string());
  if (folder) remove_from(*base, whole.filename().string(), *folder);
}

void remove_old_jobs(const std::string& path, std::string_view own) {
  const auto base = open_own_folder(AT_FDCWD, path);
  if (!base) return;  // create_record() tells why, unless there is nothing yet
  struct statvfs space {};
  std::size_t most_bytes = kKeptBytes;
  if (fstatvfs(base->get(), &space) == 0)
    most_bytes = std::min<std::size_t>(kKeptBytes, space.f_blocks * space.f_frsize / kKeptPart);
  std::size_t jobs = 0;
  std::size_t bytes = 0;
  for (const JobFolder& job : jobs_in(*base, path)) {
    if (job.name == own) continue;
    ++jobs;
    bytes += job.records.size() * sizeof(File);
    if (jobs <= kKeptJobs && bytes <= most_bytes) continue;
    const auto folder = open_own_folder(base->get(), job.name);
    if (folder && !is_in_use(*folder)) remove_from(*base, job.name, *folder);
  }
}

}  // namespace dunlin::flight
