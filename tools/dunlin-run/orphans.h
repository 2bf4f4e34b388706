// Orphans: the processes that ranks have left running, wherever these have moved: a daemon or a
// worker may have a process group or a session of its own, where no signal to its rank's group
// reaches it.
//
// The kernel makes this process the parent of every descendant whose own parent ends. So each
// descendant that is left is a child of this process sooner or later, and the number of a child
// isn't used again before it has been reaped here: no signal can hit a stranger. What a child that
// this process had before it started any rank leaves behind later is taken for a rank's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <vector>

#include "runtime/status.h"

namespace dunlin::run {

class Orphans {
 public:
  // `is_rank` tells which children the caller reaps itself.
  explicit Orphans(std::function<bool(pid_t)> is_rank) : is_rank_(std::move(is_rank)) {}

  // To be called before the first rank starts. Children that this process has before (a shell that
  // became dunlin-run may have started some), and what is in their process groups or in that of
  // this process, are never touched.
  Status adopt();
  // Reaps the orphans that have ended.
  void reap();
  // Sends SIGTERM, once, to every orphan that is running. Returns whether there is one.
  bool ask_to_end();
  // Sends SIGKILL to every orphan that is running. Returns whether there was one.
  bool kill();
  std::vector<pid_t> running() const;

 private:
  bool is_spared(pid_t child) const;
  std::vector<pid_t> find() const;

  std::function<bool(pid_t)> is_rank_;
  std::set<pid_t> spared_;         // children that are older than this object
  std::set<pid_t> spared_groups_;  // process groups
  std::set<pid_t> asked_;
};

}  // namespace dunlin::run
