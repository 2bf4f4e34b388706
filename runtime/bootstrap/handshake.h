// The handshake at the start of a connection, by which both sides prove that they know the secret.
//
//   rank                                     coordinator
//   HELLO      nonce, rank, size, job id  ->
//                                         <- CHALLENGE  nonce
//   PROOF      HMAC over all of it        ->
//                                         <- WELCOME    HMAC, job id, heartbeat period
//                                            or REJECT  reason, HMAC over it and all above
//
// The rank sends its proof first. So a program that does not know the secret never receives
// anything that was computed from it. A rank without a job id takes the coordinator's. A rejection
// has an HMAC if the rank's proof held. Without it, any program may have sent it.
#pragma once

#include <optional>
#include <string>

#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin::bootstrap {

struct JoinRequest {
  Rank rank;
  int size = 1;
  std::string job_id;  // empty: the coordinator's
  std::string secret;
};

// An authenticated connection to the coordinator.
struct AuthenticatedSocket {
  FrameSocket socket;
  std::string job_id;
  Duration heartbeat{};
};

// Who has refused a rank.
enum class Refusal {
  kNone,
  kByAnyone,       // a program that does not prove that it knows the secret; code kPermissionDenied
                   // when the secrets seem to differ
  kByCoordinator,  // another attempt is pointless
};

// The rank's side of the handshake, on one connection. All errors but those with
// Refusal::kByCoordinator may be temporary: another program uses the port, or the coordinator is
// busy. Text of the other side stands in errors in printable form.
//
// `challenge_deadline` limits the wait for the challenge only. A rank that has answered it counts
// as joined, so if the rank gave up then, the coordinator would declare it dead.
Result<AuthenticatedSocket> authenticate(FrameSocket socket, const JoinRequest& request,
                                         TimePoint challenge_deadline, TimePoint deadline,
                                         Refusal& refusal);

// The coordinator's side of the handshake, one object per connection.
class Authenticator {
 public:
  struct Job {
    int size = 1;
    std::string id;
    std::string secret;
    Duration heartbeat{};
  };
  // `job` must outlive the object.
  explicit Authenticator(const Job& job) : job_(job) {}

  // Takes a message of the rank and returns the answer to it. An error is to be logged and sent as
  // the reason of a rejection. When the proof is accepted, is_authenticated() becomes true, and the
  // answer is the welcome.
  Result<Message> receive(const Message& message);
  // The message that refuses the rank, at any time. It proves that this side knows the secret only
  // to a rank that has proven it.
  Message rejection(const Status& why) const;
  bool has_hello() const { return has_hello_; }
  bool is_authenticated() const { return is_authenticated_; }
  Rank rank() const { return claims_.rank; }

 private:
  Result<Message> on_hello(const Message& hello);
  Result<Message> on_proof(const Message& proof);

  const Job& job_;
  std::string claimed_job_id_;
  Claims claims_;
  bool has_hello_ = false;
  bool knows_secret_ = false;
  bool is_authenticated_ = false;
};

}  // namespace dunlin::bootstrap
