// Watch: follows the flight records of one job on this host. One thread.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/flight/job_view.h"

namespace dunlin::top {

class Watch {
 public:
  // `window`: the period that view() looks back over, once there are snapshots that old.
  Watch(std::string folder, Duration window) : folder_(std::move(folder)), window_(window) {}

  // Reads all records. A record that has gone was removed by its rank, which has left the job.
  void refresh();
  // The ranks since the beginning of the window, or since their own beginning after the first
  // refresh().
  flight::JobView view(const flight::ViewOptions& options) const;
  // Whether all ranks that were ever seen have ended.
  bool is_over() const;
  // Whether no record could be read so far.
  bool is_empty() const { return now_.empty(); }
  // What is wrong with records that cannot be read.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Past {
    TimePoint at;
    std::vector<flight::Snapshot> ranks;
  };

  const std::string folder_;
  const Duration window_;
  SteadyClock clock_;
  std::map<Rank, flight::Snapshot> now_;
  std::deque<Past> past_;  // the oldest first; the first is the beginning of the period
  std::vector<std::string> problems_;
};

// The folder of the job with this name, or whose name begins so. Without a name, the newest job
// that runs or, if `is_over`, the newest one that has ended. kNotFound says what there is.
Result<std::string> find_job(const std::string& base, const std::string& name, bool is_over);

// Whether a rank of the job still runs.
bool is_running(const std::string& folder);

}  // namespace dunlin::top
