// JobFile: how processes reach a running job that they are to join: one line with the coordinator's
// address, the job's name and its secret, in a file that only its owner can read.
#pragma once

#include <string>

#include "runtime/bootstrap/net.h"
#include "runtime/status.h"

namespace dunlin::run {

struct JobContact {
  bootstrap::Endpoint coordinator;
  std::string job_id;
  std::string secret;
};

// Reads the file of a running job. Errors name the file and what is wrong with it.
Result<JobContact> read_job_file(const std::string& path);

// The file exists as long as this object does, unless somebody puts another in its place. That one
// stays.
class JobFile {
 public:
  JobFile() = default;
  ~JobFile();
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

  // Replaces the file of an earlier job. Another file of that name is an error.
  Status write(const std::string& path, const JobContact& contact);

 private:
  std::string path_;  // empty: not written
  std::string line_;  // what was written there
};

}  // namespace dunlin::run
