// Barrier: no member leaves before all have entered. Each of the ceil(log2 n) rounds costs one
// notification, a microsecond inside a host. Job::barrier() needs no object, but is far slower.
//
// Owner thread of the job only. Destroy it when all members are done with theirs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <dunlin/job.h>

namespace dunlin {

class Barrier {
 public:
  // Collective over the members. All give the same name, which no other barrier of the job has, and
  // the same members in ascending order. Without members, the barrier is one of all ranks of the
  // job.
  static Result<Barrier> create(Job& job, std::string name, std::vector<Rank> members = {});

  Barrier(Barrier&&) noexcept;
  Barrier& operator=(Barrier&&) noexcept;
  ~Barrier();

  // Enters, and waits for all other members. Returns the errors of Job::wait(). After a timeout the
  // barrier goes on, and test() tells its outcome.
  Status wait(Duration timeout);

  // The same without blocking. start() enters, and returns kInvalidArgument while the last barrier
  // isn't over.
  Status start();
  // Returns kBusy until all members have entered. Meanwhile the caller calls Job::progress(), or
  // waits for something else.
  Status test();

 private:
  friend struct Internal;
  struct Impl;
  explicit Barrier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
