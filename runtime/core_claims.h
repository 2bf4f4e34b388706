// CoreClaims: which cores of this host the processes of this user have bound ranks to, so that two
// jobs don't bind to the same ones.
//
// Each core that is taken has a locked file, in a folder that belongs to the user: the kernel
// releases the locks of a process that ends, however it ends. They are seen across network and PID
// namespaces, but not by processes that see another folder, as in most containers. A job that finds
// no free core binds nothing, and the kernel places its ranks. Owner thread only.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/fd.h"

namespace dunlin {

class CoreClaims {
 public:
  // The claims are files in $XDG_RUNTIME_DIR, or in /tmp if that is not set.
  explicit CoreClaims(const Environment& environment);

  // Takes a core, named by the number of its first CPU, unless another process has it. It stays
  // taken as long as this object exists. True if the folder cannot be used.
  bool take(int cpu);
  // Those of `cpus` that could be taken.
  std::vector<int> take_all(const std::vector<int>& cpus);
  void release() { locks_.clear(); }

 private:
  std::string folder_;  // empty: cannot be used
  std::vector<Fd> locks_;
};

}  // namespace dunlin
