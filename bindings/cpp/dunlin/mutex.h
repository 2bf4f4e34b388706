// Mutex: mutual exclusion among the ranks of a job. The mutex lives at an owner rank. A rank that
// waits for the mutex waits for a notification, and polls nothing over the network (BlueFog,
// section VI-B).
//
// Where every member reaches the owner rank with remote atomics, the mutex is words in that rank's
// memory, and the rank takes no part. Otherwise the owner rank manages it in its progress(), and
// in every wait of the library.
//
// The mutex is granted in the order in which requests reach the owner rank. A rank that dies or
// leaves while it holds the mutex loses it to the next one, which is told. When the owner rank is
// gone, the mutex is gone, too: all calls return kPeerDead.
//
// The mutex does not order puts: before unlock(), flush (Visibility::kRemote) what was put under
// its protection. An error other than those of arguments and deadlines is final for this rank.
// Owner thread of the job only. Destroy it when all members are done with theirs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <dunlin/job.h>

namespace dunlin {

struct MutexOptions {
  std::string name = "mutex";  // distinguishes the mutexes of one job; the same on all members
  JobMembers members{};        // the ranks that may lock; none: Job::members()
  Rank owner{0};               // the rank that the mutex lives at, one of the members
};

class Mutex {
 public:
  enum class Locked : std::uint8_t {
    kCleanly,
    kAfterDeath,  // the former holder died: what the mutex protects may be half done
  };

  // Collective over the members, with the same options.
  static Result<Mutex> create(Job& job, const MutexOptions& options);

  Mutex(Mutex&&) noexcept;
  Mutex& operator=(Mutex&&) noexcept;
  ~Mutex();

  // Waits until this rank holds the mutex. After a timeout, the request is withdrawn. Returns
  // kInvalidArgument if this rank holds the mutex already.
  Result<Locked> lock(Duration timeout);
  // Returns once other ranks can lock the mutex. Returns kInvalidArgument unless this rank holds
  // it.
  Status unlock(Duration timeout);
  bool is_held() const;  // by this rank

  // The same without blocking: call start(), and then test() until it returns anything but busy, or
  // cancel().
  Status start();
  Result<Locked> test();
  Status cancel();
  Status start_unlock();
  Status test_unlock();
  // Advances this rank's calls and, at an owner rank that manages the mutex, the requests of all
  // ranks. Job::progress() does the same.
  Status progress();

 private:
  friend struct Internal;
  struct Impl;
  explicit Mutex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
