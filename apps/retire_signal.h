// RetireSignal: SIGTERM as a request to leave the job between two steps, as launchers and hosts
// that are taken away send it some time before SIGKILL. The first one is noted; the second one ends
// the program.
#pragma once

namespace dunlin {

class RetireSignal {
 public:
  // Takes SIGTERM over until the object is destroyed. One at a time in a process.
  RetireSignal();
  ~RetireSignal();
  RetireSignal(const RetireSignal&) = delete;
  RetireSignal& operator=(const RetireSignal&) = delete;

  // Whether SIGTERM has come. Any thread.
  bool is_asked() const;
};

}  // namespace dunlin
