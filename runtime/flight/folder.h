// Where flight records lie: a folder per user, in it a folder per job, in it a file per rank of
// this host. Stateless. Any thread.
//
// The records of a job that ended well are removed by its ranks. Those of other jobs stay, so
// that the cause can be found, until newer jobs need the space: the first rank of each job removes
// what is more than kKeptJobs, kKeptBytes or a part of the file system, the oldest first, but
// nothing of a job that still runs. Only files that begin as flight records do are removed, and
// only in folders that belong to this user and that nobody else can write to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/config.h"
#include "runtime/flight/layout.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::flight {

inline constexpr std::size_t kKeptJobs = 16;
// /dev/shm is memory. This is room for the records of almost 400 ranks.
inline constexpr std::size_t kKeptBytes = std::size_t{64} << 20;
// That of a container often has 64 MiB in all.
inline constexpr std::size_t kKeptPart = 8;

// The folder of the user: config.flight, or else /dev/shm/dunlin-flight-UID. Unlike
// $XDG_RUNTIME_DIR it is the same for processes of all sessions, and outlives them.
std::string base_folder(const Config& config);

// The name of a job's folder. `key` tells jobs with the same id apart, and cannot be found from the
// name.
std::string job_name(std::string_view job_id, const JobKey& key);

struct RecordIdentity {
  std::string job;
  Rank rank;
  int size = 1;
  TimePoint began;
};
struct CreatedRecord {
  std::string path;
  File* file = nullptr;  // mapped; the caller unmaps it
};
// Creates the record of this process, and the folders, with access for this user only. Replaces the
// record of an earlier job with the same name. kPermissionDenied if a folder belongs to somebody
// else, kResourceExhausted if the file system is full.
Result<CreatedRecord> create_record(const std::string& folder, const RecordIdentity& identity);
// Removes the file, and the job's folder if it is empty then.
void remove_record(const std::string& path);

// A job's records on this host, by rank.
struct JobFolder {
  std::string name;
  std::string path;
  std::vector<std::string> records;
};
// Those in `base`, the newest first. A folder without a record is no job. Empty if there is no such
// folder.
std::vector<JobFolder> list_jobs(const std::string& base);
// The files in one folder whose names are those of records.
std::vector<std::string> list_records(const std::string& folder);

// Whether this rank is the one of the job's ranks on this host that reports on them now: another
// one has not done so within the last minute. Two may both be told so if they ask at the same
// moment after an earlier report.
bool may_report(const std::string& folder);

// Makes room for the job `own`, which starts.
void remove_old_jobs(const std::string& base, std::string_view own);
// Removes the records in a job's folder, and the folder if it is empty then.
void remove_job(const std::string& folder);

}  // namespace dunlin::flight
