// Completion: the outcome of one posted operation of a lane (lane.h).
#pragma once

#include "runtime/status.h"

namespace dunlin::transport {

// Reports the outcome of one posted operation. The caller owns it, and must keep it alive and in
// place until it has fired. After reset() it can be used for another operation. Owner thread of the
// lane only.
class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool is_done() const { return is_done_; }
  // Meaningful only once is_done() is true.
  const Status& status() const { return status_; }
  void reset() {
    is_done_ = false;
    status_ = Status::ok();
  }

  // Called by transports. Firing twice without a reset() between is a bug and aborts the process.
  void fire(Status status);

 private:
  bool is_done_ = false;
  Status status_;
};

}  // namespace dunlin::transport
