// Team: the roles of the job's ranks, and their messages before and after the training, while this
// thread owns the fabric. Owner thread only.
#pragma once

#include <string>
#include <vector>

#include "collectives/training/method.h"
#include "transports/fabric.h"

namespace dunlin::cnn {

// The results of a rank's training.
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
  // Whether this is the first of the survivors.
  bool is_first() const { return members_.front() == fabric_.rank(); }
  const std::vector<Rank>& members() const { return members_; }
  // The last ranks of the job are parameter servers.
  int workers() const { return workers_; }
  bool is_worker() const { return rank() < workers_; }

  // Returns the value that rank 0 passes, on every rank. Waits while rank 0 lives, but no longer
  // than `timeout`.
  Result<Bytes> broadcast(const std::string& what, const Bytes& value, Duration timeout);
  // kInvalidArgument on ranks whose text differs from that of rank 0.
  Status agree(const std::string& what, const std::string& own, Duration timeout);
  // Waits until all members have called it.
  Status gather(const std::string& what, Duration timeout);
  // Replaces gather() after a death: the survivors are the members from now on.
  Status gather_survivors(Duration timeout);

  // Collective, after gather(). Returns the totals of all ranks; those of dead ranks are 0.
  // `values`, of the same length on all ranks, become the mean over the workers.
  Result<std::vector<Totals>> combine(const Totals& own, std::vector<float>& values);

 private:
  transport::Fabric& fabric_;
  int workers_;
  std::vector<Rank> members_;  // ascending; without the dead
};

}  // namespace dunlin::cnn
