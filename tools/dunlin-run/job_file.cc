#include "tools/dunlin-run/job_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <sstream>

#include "runtime/bootstrap/secret.h"
#include "runtime/fd.h"

namespace dunlin::run {
namespace {

constexpr std::string_view kMark = "dunlin-job";

}  // namespace

Result<JobContact> read_job_file(const std::string& path) {
  DUNLIN_ASSIGN(const std::string line, bootstrap::read_secret_file(path));
  std::istringstream words(line);
  std::string mark;
  std::string address;
  std::string rest;
  JobContact contact;
  words >> mark >> address >> contact.job_id >> contact.secret;
  if (!words || mark != kMark || words >> rest) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is no job file, such as dunlin-run --job-file writes", path));
  }
  auto endpoint = bootstrap::Endpoint::parse(address);
  if (!endpoint) return std::move(endpoint).status().with_context(path);
  contact.coordinator = std::move(*endpoint);
  return contact;
}

JobFile::~JobFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

Status JobFile::write(const std::string& path, const JobContact& contact) {
  const std::string what = fmt::format("the job file '{}'", path);
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    if (const auto earlier = read_job_file(path); !earlier) {
      return Status(Code::kAlreadyExists,
                    "it exists and is something else: " + std::string(earlier.status().message()))
          .with_context(what);
    }
  }
  const std::string partial = fmt::format("{}.{}.partial", path, bootstrap::random_hex(4));
  const Fd file(
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return Status::from_errno(what, errno);
  const std::string line = fmt::format("{} {} {} {}\n", kMark, contact.coordinator.to_string(),
                                       contact.job_id, contact.secret);
  const bool is_written =
      ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!is_written || rename(partial.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(partial.c_str());
    return Status::from_errno(what, error);
  }
  path_ = path;
  return Status::ok();
}

}  // namespace dunlin::run
