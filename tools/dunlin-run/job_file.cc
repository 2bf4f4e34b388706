#include "tools/dunlin-run/job_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "runtime/bootstrap/secret.h"
#include "runtime/files/output_file.h"

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
  if (path_.empty()) return;
  // A later job may have replaced the file.
  const auto line = bootstrap::read_secret_file(path_);
  if (line && *line == line_) unlink(path_.c_str());
}

Status JobFile::write(const std::string& path, const JobContact& contact) {
  const std::string what = fmt::format("the job file '{}'", path);
  for (const std::string* const field : {&contact.job_id, &contact.secret}) {
    if (field->find_first_of(" \t\r\n") == std::string::npos) continue;
    return Status(Code::kInvalidArgument,
                  "the job's name and its secret must have no spaces for a job file")
        .with_context(what);
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    if (const auto earlier = read_job_file(path); !earlier)
      return Status(earlier.status()).with_context(what + " exists and is something else");
  }
  const std::string line = fmt::format("{} {} {} {}", kMark, contact.coordinator.to_string(),
                                       contact.job_id, contact.secret);
  DUNLIN_TRY(replace_file(path, line + "\n", {.is_private = true}).with_context(what));
  path_ = path;
  line_ = line;
  return Status::ok();
}

}  // namespace dunlin::run
