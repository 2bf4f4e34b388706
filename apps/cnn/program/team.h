// Team: who of the job does what, and what its ranks tell one another before and after the
// training, when the fabric is this thread's. Owner thread only.
#pragma once

#include <string>
#include <vector>

#include "apps/training/method.h"
#include "transports/fabric.h"

namespace dunlin::cnn {

// What a rank's training came to.
struct Totals {
  double iterations = 0;
  double time_s = 0;
  double compute_s = 0;
  double wait_s = 0;
  double bytes_sent = 0;
  double has_reached_target = 0;  // 1: it has
};

class Team {
 public:
  Team(transport::Fabric& fabric, const training::MethodOptions& method);

  int rank() const { return fabric_.rank().value(); }
  int size() const { return fabric_.size(); }
  // Of those who are left.
  bool is_first() const { return members_.front() == fabric_.rank(); }
  const std::vector<Rank>& members() const { return members_; }
  // Parameter servers are the job's last ranks.
  int workers() const { return workers_; }
  bool is_worker() const { return rank() < workers_; }

  // What rank 0 says of `what`, on all ranks; `own` is rank 0's. Waits as long as rank 0 lives, but
  // no longer than `timeout`.
  Result<Bytes> told_by_first(const std::string& what, const Bytes& own, Duration timeout);
  // kInvalidArgument where this rank's text is another one than rank 0's.
  Status agree(const std::string& what, const std::string& own, Duration timeout);
  // Until all members have come.
  Status gather(const std::string& what, Duration timeout);
  // After a death, instead of gather(): those who are left are the members from now on.
  Status gather_survivors(Duration timeout);

  // Collective, when all have come: everybody's totals, by rank, of the dead zeros; and in
  // `values`, of the same length on all ranks, the mean over the workers'.
  Result<std::vector<Totals>> combine(const Totals& own, std::vector<float>& values);

 private:
  transport::Fabric& fabric_;
  int workers_;
  std::vector<Rank> members_;  // ascending: all, but for those who died
};

}  // namespace dunlin::cnn
