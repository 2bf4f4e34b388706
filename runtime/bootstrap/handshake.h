// The handshake that opens every connection, before either side believes anything.
//
//   member                                   coordinator
//   HELLO      nonce, rank, size, job id  ->
//                                         <- CHALLENGE  nonce
//   PROOF      HMAC over all of it        ->
//                                         <- WELCOME    HMAC, job id, heartbeat period
//                                            or REJECT  why
//
// The member proves itself first, so that a stranger gets nothing computed with the secret out of
// the coordinator's port. A member without a job id takes the coordinator's.
#pragma once

#include <optional>
#include <string>

#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin::bootstrap {

struct JoinRequest {
  Rank rank;
  int size = 1;
  std::string job_id;  // empty: whatever the coordinator says
  std::string secret;
};

// An authenticated connection to the coordinator.
struct Session {
  FrameSocket socket;
  std::string job_id;
  Duration heartbeat{};
};

// The member's side, on one connection. kPermissionDenied, kAlreadyExists, ... when the coordinator
// says no: trying again won't help. Everything else may pass: a port that is somebody else's for
// the moment, a coordinator that is too busy. `patience` ends the wait for the challenge only: who
// has answered it counts as joined, and would be lost to the job if he gave up then.
Result<Session> introduce(FrameSocket socket, const JoinRequest& request, TimePoint patience,
                          TimePoint deadline);

// The coordinator's side, one per connection, fed with the messages that arrive.
class Doorkeeper {
 public:
  struct Job {
    int size = 1;
    std::string id;
    std::string secret;
    Duration heartbeat{};
  };
  // `job` outlives the doorkeeper.
  explicit Doorkeeper(const Job& job) : job_(job) {}

  // What to answer; an error is what to log and to reject the connection with. After the proof was
  // accepted, is_proved() is true and the answer is the welcome.
  Result<Message> receive(const Message& message);
  bool is_proved() const { return is_proved_; }
  Rank rank() const { return claims_.rank; }

 private:
  Result<Message> greet(const Message& hello);
  Result<Message> welcome(const Message& proof);

  const Job& job_;
  std::string claimed_job_id_;
  Claims claims_;
  bool is_greeted_ = false;
  bool is_proved_ = false;
};

}  // namespace dunlin::bootstrap
