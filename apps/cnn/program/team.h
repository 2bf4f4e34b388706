// Team: the roles of the job's ranks, and their messages before and after the training, while this
// thread owns the fabric. Owner thread only.
#pragma once

#include <string>
#include <vector>

#include "apps/members.h"
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
  // Borrows its arguments but `method` for its lifetime.
  Team(transport::Fabric& fabric, Members& members, const training::MethodOptions& method);

  int rank() const { return fabric_.rank().value(); }
  // The ranks that start the job.
  int size() const { return members_.founders(); }
  // Whether this is the first of the present members.
  bool is_first() const { return members_.is_first(); }
  const std::vector<Rank>& members() const { return members_.ranks(); }
  // Those of size() that train. The others, the last ones of the job, are parameter servers.
  int workers() const { return size() - servers_; }
  // How many may train together at most.
  int most_workers() const { return fabric_.size() - servers_; }
  bool is_worker() const { return is_worker(fabric_.rank()); }
  bool is_worker(Rank rank) const { return rank.value() < most_workers(); }

  // Returns the value that rank 0 passes, on every rank. Waits while rank 0 lives, but no longer
  // than `timeout`.
  Result<Bytes> broadcast(const std::string& what, const Bytes& value, Duration timeout);
  // Waits until all members have called it.
  Status gather(const std::string& what, Duration timeout);
  // Replaces gather() after a death: the survivors are the members from now on.
  Status gather_survivors();

  // Collective, after gather(). Returns the totals of all ranks up to the last one that has taken
  // part; those of ranks that are gone are 0.
  // `values`, of the same length on all ranks, become the mean over the workers.
  Result<std::vector<Totals>> combine(const Totals& own, std::vector<float>& values);

 private:
  transport::Fabric& fabric_;
  Members& members_;
  int servers_;
};

}  // namespace dunlin::cnn
