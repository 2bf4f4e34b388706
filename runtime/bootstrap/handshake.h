// The handshake at the start of a connection, by which both sides prove that they know the secret.
//
//   rank                                     coordinator
//   HELLO      nonce, rank, size,         ->
//              founders, job id
//                                         <- CHALLENGE  nonce
//   PROOF      HMAC over all of it,       ->
//              its process; to resume a
//              session: messages received
//                                         <- WELCOME    HMAC, job id, heartbeat period, grace
//                                                       period, its process, messages received,
//                                                       rank, size, founders
//                                            or REJECT  reason, HMAC over it and all above
//
// The rank sends its proof first. So a program that does not know the secret never receives
// anything that was computed from it. A rank without a job id takes the coordinator's. A rejection
// has an HMAC if the rank's proof held. Without it, any program may have sent it. A rank that
// resumes a session includes the session's key in its HMAC. A rank that joins a running job says
// rank -1, size 0 and 0 founders, and the welcome tells it all three.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/process_id.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin::bootstrap {

// The session that a new connection continues.
struct Resumption {
  Nonce key{};
  std::uint64_t received = 0;  // messages that have arrived at this side
};

struct JoinRequest {
  Rank rank;           // Rank(): one that is free
  int size = 1;        // 0: the coordinator's
  std::string job_id;  // empty: the coordinator's
  std::string secret;
  std::string process{};                // of this rank
  std::optional<Resumption> resumed{};  // none: the rank joins
  int founders = 0;                     // 0: all ranks start the job, or it is not known
};

// An authenticated connection to the coordinator.
struct AuthenticatedSocket {
  FrameSocket socket;
  std::string job_id;
  Duration heartbeat{};
  Duration grace{};  // how long the rank may be without a connection
  ProcessId coordinator{};
  Resumption session{};  // received: at the coordinator
  Rank rank{};
  int size = 0;
  int founders = 0;
};

// The origin of a refusal.
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
    int size = 1;      // ranks 0 to size - 1 can take part
    int founders = 1;  // those from 0 on start the job
    std::string id;
    std::string secret;
    Duration heartbeat{};
    Duration grace{};
    std::string process{};  // of the coordinator
  };
  // The key of the session of a rank, and how many of its messages have arrived; nothing if the
  // rank has none.
  using FindSession = std::function<std::optional<Resumption>(Rank)>;
  // A rank for a process that joins a running job, or why there is none.
  using FindRank = std::function<Result<Rank>()>;
  // `job` must outlive the object. Without `find_rank`, nothing can join later.
  Authenticator(const Job& job, FindSession find_session, FindRank find_rank = nullptr)
      : job_(job), find_session_(std::move(find_session)), find_rank_(std::move(find_rank)) {}

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
  // Valid once it is authenticated:
  bool resumes() const { return resumes_; }
  const Nonce& session() const { return session_; }  // a new one or the resumed one
  std::uint64_t received_by_rank() const { return member_.received; }  // of a resumed session
  const ProcessId& process() const { return process_; }

 private:
  Result<Message> on_hello(const Message& hello);
  Result<Message> on_proof(const Message& proof);
  Status check_claims();

  const Job& job_;
  FindSession find_session_;
  FindRank find_rank_;
  std::string claimed_job_id_;
  std::string claimed_process_;
  Claims claims_;
  Claims member_;  // what the rank has proven
  ProcessId process_;
  Nonce session_{};
  bool resumes_ = false;
  bool has_hello_ = false;
  bool knows_secret_ = false;
  bool is_authenticated_ = false;
};

}  // namespace dunlin::bootstrap
